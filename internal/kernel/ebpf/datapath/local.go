package datapath

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/cgroup"
	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/plan"
)

// LocalHooks are the programs at the socket calls of the host's processes. They are
// attached in this order. The programs that change addresses come last, so that a
// changed socket always gets its original destination reported, and its close is
// always counted.
var LocalHooks = []string{
	"fl_release", "fl_bind4", "fl_bind6", "fl_getpeer4", "fl_getpeer6", "fl_recvmsg4", "fl_recvmsg6",
	"fl_sendmsg4", "fl_sendmsg6", "fl_connect4", "fl_connect6",
}

// localName names the attachments at the cgroup of the host's processes. At a
// workload's cgroup the name is the cgroup's id.
const localName = "root"

// localCgroup returns the directory of the cgroup whose sockets the port mappings
// apply to.
func (h *Handle) localCgroup() (string, error) {
	if h.opt.Cgroup != "" {
		return h.opt.Cgroup, nil
	}
	return cgroup.Root()
}

// LocalClients are the programs at the socket calls of the host's processes.
var LocalClients = Programs[plan.LocalClients]{
	attach: setLocalClients,
	detach: delLocalClients,
	read:   readLocalClients,
}

func setLocalClients(h *Handle, p *ebpf.Datapath, _ plan.LocalClients) error {
	dir, err := h.localCgroup()
	if err != nil {
		return fmt.Errorf("find the cgroup of local clients: %w", err)
	}
	for _, hook := range LocalHooks {
		if err := p.AttachCgroup(hook, dir, localName); err != nil {
			return err
		}
	}
	return nil
}

// BindKey returns the key that a socket of the proxy must have while it binds to a
// port that is published via ebpf. The lower half is the socket's mark, the upper
// half its priority. The key is 0 if no eBPF programs are loaded. BindKey is safe
// for concurrent use.
func (h *Handle) BindKey() (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return 0, err
	}
	return p.BindKey(), nil
}

// delLocalClients detaches the hooks in reverse order.
func delLocalClients(_ *Handle, p *ebpf.Datapath, _ plan.LocalClients) error {
	var errs []error
	for _, hook := range slices.Backward(LocalHooks) {
		errs = append(errs, p.DetachCgroup(hook, localName))
	}
	return errors.Join(errs...)
}

func readLocalClients(h *Handle, p *ebpf.Datapath, o plan.LocalClients) (plan.Object, error) {
	whole, some := h.hasLocalClients(p)
	o.Partly = !whole
	return plan.OrNil(o, some), nil
}

// hasLocalClients reports whether all hooks are attached, and whether some are.
func (h *Handle) hasLocalClients(p *ebpf.Datapath) (whole, some bool) {
	whole = true
	for _, hook := range LocalHooks {
		has := p.HasCgroup(hook, localName)
		whole, some = whole && has, some || has
	}
	return whole, some
}
