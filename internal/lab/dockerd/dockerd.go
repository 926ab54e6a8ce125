// Package dockerd runs a private Docker engine: Debian's, or any whose programs
// are in a directory (test/install-engine builds one). It knows nothing of
// paths or measuring, and never touches the host's own Docker.
//
// # Theory of operation
//
// A holder, the first process of a PID namespace, keeps a host for the engine:
// mount, cgroup, IPC and UTS namespaces of its own, and the network namespace
// that it is started in. Below /run there, in memory, is everything that the
// engine writes: images, state, sockets, the directory for plugins; /etc and
// /opt, which dockerd and containerd write to unasked, are overlays. So nothing
// is left on any disk. When the holder ends, and it cannot outlive us, the
// kernel kills all that runs in there and takes the mounts away. What is left
// is the caller's to remove: the cgroup, and links and rules in the network
// namespace.
//
//	caller ── holder (sh, PID 1) ── dockerd ── containerd
//	  │                               ├─ docker-proxy …
//	  └─ docker (the CLI, outside)    └─ shim ── container
//
// The engine's host sees a pure cgroup v2 hierarchy, whose root is the cgroup
// that the caller gives, whatever the real host has. Needs the overlay
// filesystem, cgroup v2, unshare, nsenter and mount (util-linux).
package dockerd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"fairlead/internal/child"
)

// startLimit is how long the engine may take until it answers.
const startLimit = 2 * time.Minute

// Options say what to run and where.
type Options struct {
	// Netns is the network namespace that is to be the engine's host; nil
	// means ours.
	Netns *os.File
	// Enter is put before the command that makes the namespaces, such as
	// nsenter with its flags, for an engine in another mount namespace than
	// ours.
	Enter []string
	// Cgroup is an open cgroup v2 directory without processes, for the engine
	// to find at /sys/fs/cgroup. What runs there when the engine has ended, and
	// the directory itself, are the caller's to remove.
	Cgroup *os.File
	// Accounted is an open cgroup v2 directory within Cgroup where the engine's
	// processes run; nil means one of the engine's own.
	Accounted *os.File
	// Programs is a directory that holds dockerd, docker-proxy and what else is
	// not to be taken from PATH; empty means PATH alone.
	Programs string
	// Flags are for dockerd, beside those that say where it keeps its files.
	Flags []string
}

// Engine is a private Docker engine.
type Engine struct {
	opt    Options
	holder *child.Process
	// in closes the holder's input, at whose end it ends.
	in    io.Closer
	group *os.File
	// daemon is dockerd, behind the nsenter that started it.
	daemon *child.Process
	log    logged
}

// Start starts the engine and waits until it answers. It runs until Stop, or
// until ctx or this process ends.
func Start(ctx context.Context, opt Options) (e *Engine, err error) {
	e = &Engine{opt: opt}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start a private Docker engine: %w", err), e.Stop())
			e = nil
		}
	}()
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := e.hold(ctx, limited); err != nil {
		return e, err
	}
	return e, e.startDaemon(ctx, limited)
}

// PID is the process id of the holder, as the caller sees it. Its namespaces
// are the engine's host.
func (e *Engine) PID() int { return e.holder.Cmd.Process.Pid }

// Root is where the caller finds the files of the engine's host.
func (e *Engine) Root() string { return fmt.Sprintf("/proc/%d/root", e.PID()) }

// Command returns a command of the engine's host: a process there is seen by
// the engine, sees its files below /run, and ends with it. A relative path is
// one of the engine's programs, or in PATH. It does not end with the thread that
// starts it (PR_SET_PDEATHSIG), which may be any.
func (e *Engine) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	enter := []string{"--target", fmt.Sprint(e.PID()), "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup", "--", name}
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
	cmd.Env = e.environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(e.group.Fd())}
	return cmd
}

// Docker returns a command of the CLI that speaks to the engine, outside of its
// host. It reads nobody's configuration.
func (e *Engine) Docker(ctx context.Context, args ...string) *exec.Cmd {
	with := append([]string{"--host", "unix://" + e.Root() + Socket}, args...)
	cmd := exec.CommandContext(ctx, e.program("docker"), with...)
	cmd.Env = append(e.environ(), "DOCKER_CONFIG="+e.Root()+"/run/cli")
	return cmd
}

// Run runs the CLI and returns what it printed, without the last newline.
func (e *Engine) Run(ctx context.Context, args ...string) (string, error) {
	var said strings.Builder
	cmd := e.Docker(ctx, args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// Stop ends the engine at once, with everything that runs on its host.
func (e *Engine) Stop() error {
	if e.holder == nil {
		return nil
	}
	e.in.Close()
	err := e.holder.Kill()
	if e.daemon != nil {
		<-e.daemon.Done()
	}
	if e.group != nil && e.group != e.opt.Accounted {
		e.group.Close()
	}
	return err
}

// environ is the caller's, with the engine's programs before those in PATH,
// and without what would lead the CLI to another engine.
func (e *Engine) environ() []string {
	var all []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "DOCKER_") && !strings.HasPrefix(v, "PATH=") {
			all = append(all, v)
		}
	}
	path := os.Getenv("PATH") + ":/usr/local/sbin:/usr/sbin:/sbin"
	if e.opt.Programs != "" {
		path = e.opt.Programs + ":" + path
	}
	return append(all, "PATH="+path)
}

// program finds one of the engine's, whose name alone says that PATH has it.
func (e *Engine) program(name string) string {
	own := filepath.Join(e.opt.Programs, name)
	if _, err := os.Stat(own); e.opt.Programs == "" || err != nil {
		return name
	}
	return own
}

// furnish makes the engine's host and waits until its input ends. The shell
// stays the first process: it reaps what the engine's shims leave.
const furnish = `
mount --make-rprivate /
mount -t proc none /proc
umount --recursive --lazy /sys
mount -t sysfs none /sys
mount -t cgroup2 none /sys/fs/cgroup
mount -t bpf none /sys/fs/bpf
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/docker/plugins /run/netns /run/cli
for dir in /etc /opt; do
	[ -d $dir ] || continue
	mkdir -p /run/over$dir/upper /run/over$dir/work
	mount -t overlay -o lowerdir=$dir,upperdir=/run/over$dir/upper,workdir=/run/over$dir/work none $dir
done
echo {} > /run/dockerd.json
mkdir -p /sys/fs/cgroup/engine
echo $$ > /sys/fs/cgroup/engine/cgroup.procs
echo ready
cat
exit
`

// hold makes the engine's host. It lives as long as ctx, and is made within
// limited.
func (e *Engine) hold(ctx, limited context.Context) error {
	args := append(e.opt.Enter[:len(e.opt.Enter):len(e.opt.Enter)], "unshare", "--mount", "--cgroup", "sh", "-ec", furnish)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = e.environ()
	cmd.Stderr = &e.log
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if e.holder, err = child.Start(ctx, cmd, child.Place{Netns: e.opt.Netns, Cgroup: e.opt.Cgroup, Contained: true}); err != nil {
		return err
	}
	e.in = in
	defer context.AfterFunc(limited, func() { _ = e.holder.Kill() })()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		_ = e.holder.Kill() // what it said is complete when it has ended
		return fmt.Errorf("make a host for it: %w: %s", errors.Join(err, limited.Err()), e.log.text())
	}
	if e.group = e.opt.Accounted; e.group == nil {
		e.group, err = os.Open(filepath.Join(e.opt.Cgroup.Name(), "engine"))
	}
	return err
}
