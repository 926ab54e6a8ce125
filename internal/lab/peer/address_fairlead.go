package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/virtual"
)

// fairleadAddress gives a virtual address to one of several hosts of a cluster, which share an etcd.
type fairleadAddress struct {
	*rig.Engine
	hold time.Duration

	etcd     *child.Process
	said     program.Output
	endpoint string
	token    string
	daemons  map[*virtual.Host]*failover.Daemon
	// mounts are the mount namespaces of the daemons. They keep the bpffs with the fence, as on a host
	// whose daemon is killed.
	mounts []*os.File
}

func newFairleadAddress(p suite.Path) rig.Maker {
	return &fairleadAddress{Engine: rig.NewEngine(p), hold: p.Hold}
}

// Needs implements rig.Maker.
func (f *fairleadAddress) Needs() rig.Needs {
	needs := f.Engine.Needs()
	needs.Programs = []rig.Program{{Name: "etcd", Package: "etcd-server"}, unshareCommand, nftCommand}
	return needs
}

// Share implements virtual.Shared: it starts an etcd with one member.
func (f *fairleadAddress) Share(ctx context.Context, at child.Place, addr netip.Addr) error {
	const port = 2379
	name, err := program.Find("etcd")
	if err != nil {
		return fmt.Errorf("find etcd: %w", err)
	}
	f.endpoint, f.daemons = fmt.Sprintf("http://%s:%d", addr, port), map[*virtual.Host]*failover.Daemon{}
	peers := fmt.Sprintf("http://%s:2380", addr)
	etcd := program.Private{Args: []string{name, "--data-dir", "/mnt/data", "--listen-client-urls", f.endpoint,
		"--advertise-client-urls", f.endpoint, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
		"--initial-cluster", "default=" + peers, "--log-level", "error"}, Said: &f.said}
	if f.etcd, err = etcd.Start(ctx, at); err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	if !program.Await(ctx, f.etcd, func() bool { return program.Listens(f.etcd.Cmd.Process.Pid, port) }) {
		return errors.Join(fmt.Errorf("start etcd: %s", f.said.Line()), ctx.Err())
	}
	return nil
}

// Keep implements virtual.Keeper. The first host creates the cluster with the address, the others join it.
func (f *fairleadAddress) Keep(ctx context.Context, h *virtual.Host, at child.Place) (*child.Process, error) {
	d := &failover.Daemon{}
	f.daemons[h] = d
	if err := d.Start(ctx, at); err != nil {
		return d.Process, fmt.Errorf("start the daemon: %w: %s", err, d.Log())
	}
	mounts, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", d.Process.Cmd.Process.Pid))
	if err != nil {
		return d.Process, err
	}
	f.mounts = append(f.mounts, mounts)
	if f.token != "" {
		return d.Process, d.Do(ctx, nil, "cluster", "join", f.token, "--node-name", h.Name)
	}
	return d.Process, f.found(ctx, h, d)
}

// found creates the cluster.
func (f *fairleadAddress) found(ctx context.Context, h *virtual.Host, d *failover.Daemon) error {
	if err := d.Do(ctx, nil, "cluster", "init", "--etcd", f.endpoint, "--node-name", h.Name); err != nil {
		return err
	}
	err := d.Do(ctx, nil, "cluster", "address", "add", netip.PrefixFrom(virtual.Address, virtual.Bits).String(),
		"--hold", f.hold.String())
	if err != nil {
		return err
	}
	token, err := d.Ask(ctx, "cluster", "token", "create", "--uses", "2")
	f.token = string(bytes.TrimSpace(token))
	return err
}

// Give implements virtual.Keeper.
func (f *fairleadAddress) Give(ctx context.Context, h *virtual.Host) error {
	return f.daemons[h].Do(ctx, nil, "cluster", "address", "move", virtual.Address.String())
}

// Unshare implements virtual.Shared.
func (f *fairleadAddress) Unshare() error {
	var errs []error
	for _, m := range f.mounts {
		errs = append(errs, m.Close())
	}
	if f.etcd != nil {
		_ = f.etcd.Kill() // its exit status says only that it was killed
	}
	f.etcd, f.mounts, f.token = nil, nil, ""
	return errors.Join(errs...)
}
