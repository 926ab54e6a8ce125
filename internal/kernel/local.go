package kernel

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/cgroup"
	"fairlead/internal/kernel/ebpf"
)

// localHooks are the programs at the socket calls of the host's own
// processes. Those that turn come last, so that no socket is turned before it
// can be told what it has dialled, and its end be seen.
var localHooks = []string{
	"release", "bind4", "bind6", "getpeername4", "getpeername6", "recvmsg4", "recvmsg6",
	"sendmsg4", "sendmsg6", "connect4", "connect6",
}

// localName tells their attachments from those at a workload's cgroup.
const localName = "root"

// localCgroup returns the directory of the cgroup whose processes' sockets
// are led.
func (h *Host) localCgroup() (string, error) {
	if h.opt.Cgroup != "" {
		return h.opt.Cgroup, nil
	}
	return cgroup.Root()
}

func (h *Host) setLocalClients(p *ebpf.Datapath) error {
	dir, err := h.localCgroup()
	if err != nil {
		return fmt.Errorf("find the cgroup of local clients: %w", err)
	}
	for _, hook := range localHooks {
		if err := p.AttachCgroup(hook, dir, localName); err != nil {
			return err
		}
	}
	return nil
}

// BindKey returns the key that a socket of the proxy must have while it is bound
// to a port that is published via ebpf: its mark is the lower half, its priority
// the upper half. It is 0 if no eBPF programs are loaded.
func (h *Host) BindKey() (uint64, error) {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return 0, err
	}
	return p.BindKey(), nil
}

// delLocalClients detaches the hooks in the opposite order.
func (h *Host) delLocalClients(p *ebpf.Datapath) error {
	var errs []error
	for _, hook := range slices.Backward(localHooks) {
		errs = append(errs, p.DetachCgroup(hook, localName))
	}
	return errors.Join(errs...)
}

// hasLocalClients reports whether all of the hooks are there, or some are.
func (h *Host) hasLocalClients(p *ebpf.Datapath) (whole, some bool) {
	whole = true
	for _, hook := range localHooks {
		has := p.HasCgroup(hook, localName)
		whole, some = whole && has, some || has
	}
	return whole, some
}
