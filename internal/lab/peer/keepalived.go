package peer

import (
	"context"
	"errors"
	"fmt"

	"fairlead/internal/child"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/virtual"

	"golang.org/x/sys/unix"
)

// keepalived gives a virtual address to one of several hosts with VRRP (RFC 5798).
type keepalived struct {
	*rig.Engine
	// global and instance are further settings of the two sections of its
	// configuration.
	global, instance string
	// priority is that of the first host; each further one has one less.
	priority int
}

// newKeepalived returns the maker of keepalived with its defaults: an advertisement per
// second, and no other settings than those that an instance needs. As its documentation
// advises, the hosts have different priorities.
func newKeepalived(p suite.Path) rig.Maker {
	return &keepalived{Engine: rig.NewEngine(p), priority: 100}
}

// newTunedKeepalived returns the maker of keepalived with its fastest usual settings:
// ten advertisements per second, the priorities with the shortest delay, and a process
// that other ones do not delay.
func newTunedKeepalived(p suite.Path) rig.Maker {
	return &keepalived{Engine: rig.NewEngine(p), priority: 254,
		global: "vrrp_version 3\n vrrp_rt_priority 50\n vrrp_no_swap", instance: "advert_int 0.1"}
}

// Needs implements rig.Maker.
func (k *keepalived) Needs() rig.Needs {
	needs := k.Engine.Needs()
	needs.Programs = []rig.Program{{Name: "keepalived", Package: "keepalived"}, unshareCommand, nftCommand}
	return needs
}

// config returns the configuration for a host.
func (k *keepalived) config(h *virtual.Host) string {
	return fmt.Sprintf(`global_defs {
 router_id %s
 %s
}
vrrp_instance lab {
 interface %s
 virtual_router_id 51
 priority %d
 %s
 virtual_ipaddress {
  %s/32
 }
}
`, h.Name, k.global, h.Link(), k.priority-h.Rank(), k.instance, virtual.Address)
}

// Keep implements virtual.Keeper.
func (k *keepalived) Keep(ctx context.Context, h *virtual.Host, at child.Place) (*child.Process, error) {
	name, err := program.Find("keepalived")
	if err != nil {
		return nil, fmt.Errorf("find keepalived: %w", err)
	}
	const file = "keepalived.conf"
	p, err := program.Private{Args: []string{name, "--dont-fork", "--log-console", "--vrrp", "--use-file=/mnt/" + file,
		"--pid=/mnt/keepalived.pid", "--vrrp_pid=/mnt/vrrp.pid"}, Files: map[string]string{file: k.config(h)},
		Said: &h.Said}.Start(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("start keepalived: %w", err)
	}
	return p, nil
}

// Give implements virtual.Keeper: keepalived has no command for this, so that
// administrators stop it, and it announces its end.
func (*keepalived) Give(ctx context.Context, h *virtual.Host) error {
	if err := h.Process.Cmd.Process.Signal(unix.SIGTERM); err != nil {
		return fmt.Errorf("stop keepalived: %w", err)
	}
	select {
	case <-h.Process.Done():
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("stop keepalived: %s", h.Said.Line()), ctx.Err())
	}
}
