package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/docker"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/sandbox"
	"fairlead/internal/store"

	"golang.org/x/sys/unix"
)

// Units are the systemd units of the daemon.
var Units = []string{"fairlead.socket", "fairlead-docker.socket", "fairlead.service"}

// Installed is what of Fairlead is on the host.
type Installed struct {
	// Daemon is the process of the daemon; 0 if none runs.
	Daemon int `json:"daemon,omitempty"`
	// Units are the daemon's units in systemd. They are disabled and stopped.
	Units []string `json:"units,omitempty"`
	// Commands remove the objects in the kernel that have Fairlead's mark.
	Commands []string `json:"commands"`
	// Directories are removed with everything in them.
	Directories []string `json:"directories"`
	// DockerNetworks are the IDs of the networks that a Docker engine has created with Fairlead's driver. The engine
	// keeps them.
	DockerNetworks []string `json:"dockerNetworks,omitempty"`
}

// FindInstalled returns what of Fairlead is on the host, and changes nothing. If keep is set, the state that survives
// a reboot is left out.
func FindInstalled(ctx context.Context, opt Options, keep bool) (Installed, error) {
	f := Installed{Commands: []string{}, Directories: directories(opt, keep)}
	f.Daemon = Daemon()
	f.Units = units(ctx)
	host, err := kernel.Open("", kernel.Options{})
	if err != nil {
		return f, err
	}
	have, err := host.Observe(nil, nil)
	if err := errors.Join(err, host.Close()); err != nil {
		return f, err
	}
	for _, op := range plan.Diff(have, nil) {
		f.Commands = append(f.Commands, op.Commands()...)
	}
	f.DockerNetworks, err = dockerNetworks(ctx, opt)
	return f, err
}

// directories returns the daemon's directories that exist. Others than the default ones may have files of other
// programs, and stay.
func directories(opt Options, keep bool) []string {
	all := []string{}
	if _, err := os.Lstat(opt.Run); err == nil && opt.Run == RunDir {
		all = append(all, opt.Run)
	}
	if _, err := os.Lstat(opt.State); err == nil && opt.State == StateDir && !keep {
		all = append(all, opt.State)
	}
	return all
}

// dockerNetworks returns the IDs of the networks in the stored state that a Docker engine has created. A daemon that has
// the store open is asked; one that does not answer is ended, or makes the store fail again.
func dockerNetworks(ctx context.Context, opt Options) (ids []string, err error) {
	desired, err := store.ReadDesired(store.Places{State: opt.State, Run: opt.Run})
	all := desired.Networks
	if inUse := new(store.InUseError); errors.As(err, &inUse) {
		answer, _ := admin.ListNetworks.Do(ctx, admin.NewClient(opt.Socket))
		all, err = answer.Networks, nil
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, n := range all {
		if n.Origin == model.FromDocker {
			ids = append(ids, docker.NetworkID(n.Name))
		}
	}
	return ids, err
}

// Daemon returns the process of the daemon of this network namespace; 0 if none runs.
func Daemon() int {
	if o := running(); o != nil {
		return o.PID
	}
	return 0
}

// running returns the daemon that has the lock of this network namespace; nil if none runs.
func running() *owner {
	holder, err := lockHolder()
	if err != nil || !isDaemon(holder) {
		return nil
	}
	return &owner{PID: int(holder.Pid)}
}

// units returns the daemon's units that systemd has, if systemd manages this network namespace.
func units(ctx context.Context) (all []string) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil
	}
	own, err := sandbox.NamespaceAt("/proc/self/ns/net")
	systemds, failed := sandbox.NamespaceAt("/proc/1/ns/net")
	if err != nil || failed != nil || own != systemds {
		return nil
	}
	for _, unit := range Units {
		if exec.CommandContext(ctx, "systemctl", "cat", unit).Run() == nil {
			all = append(all, unit)
		}
	}
	return all
}

// Uninstall ends the daemon of this network namespace, and removes from the host everything that has Fairlead's mark.
// If keep is set, the state that survives a reboot stays as it is, and the next daemon restores it.
// No other daemon of the namespace runs before all is removed: it would lose its files.
func Uninstall(ctx context.Context, opt Options, keep bool) (err error) {
	if err := endDaemon(ctx); err != nil {
		return err
	}
	if err := MakeDirs(opt); err != nil {
		return err
	}
	opt.Socket = filepath.Join(opt.Run, "uninstall.sock") // the daemon ends when it listens
	unlock, err := lockNamespace(opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	remove := directories(opt, keep)
	if keep {
		copied, err := os.MkdirTemp(opt.Run, "uninstall-")
		if err != nil {
			return fmt.Errorf("copy the state: %w", err)
		}
		defer os.RemoveAll(copied)
		if err := os.CopyFS(copied, os.DirFS(opt.State)); err != nil {
			return fmt.Errorf("copy the state: %w", err)
		}
		opt.State = copied
	}
	ctx, ready := context.WithCancel(ctx)
	defer ready()
	opt.TearDown, opt.NoDocker, opt.Ready = true, true, ready
	if err := runLocked(ctx, opt); err != nil {
		return err
	}
	for _, dir := range remove {
		if err := removeDirectory(dir); err != nil {
			return err
		}
	}
	return nil
}

// removeDirectory removes one of the daemon's directories. The locks in it belong to the daemons of all network
// namespaces, and stay while these run.
func removeDirectory(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the daemon has removed it at its end
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), lockPrefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	removeStaleLocks("")
	if err := os.Remove(dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// endDaemon ends the daemon of this network namespace, and its units. What is on the host stays.
func endDaemon(ctx context.Context) error {
	if all := units(ctx); len(all) > 0 {
		stop := exec.CommandContext(ctx, "systemctl", append([]string{"disable", "--now"}, all...)...)
		if out, err := stop.CombinedOutput(); err != nil {
			return fmt.Errorf("stop the daemon's units: %w: %s", err, out)
		}
	}
	o := running()
	if o == nil || !o.giveWay() {
		return nil // it has ended meanwhile
	}
	for end := time.Now().Add(startLimit); running() != nil; time.Sleep(lockRetry) {
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("end the daemon: process %d still runs: end it, and repeat the command", o.PID)
		}
	}
	return nil
}
