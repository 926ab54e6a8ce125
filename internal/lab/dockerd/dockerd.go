// Package dockerd runs a private Docker engine: Debian's, or any whose programs
// are in one directory (test/install-engine builds one). It does not measure, and
// never touches the host's own Docker.
//
// # Theory of operation
//
// A holder, the first process of a PID namespace, keeps a host for the engine: new
// mount, cgroup, IPC and UTS namespaces, and the network namespace that it is
// started in. Everything that the engine writes is in memory below /run there:
// images, state, sockets, the directory for plugins. /etc and /opt, which dockerd
// and containerd write to by default, are overlays. So no file is left on any
// disk. The holder ends at the latest with this process. The kernel then kills all
// processes in its PID namespace and unmounts its filesystems. The caller removes
// what is left: the cgroup, and links and rules in the network namespace.
//
//	caller ── holder (sh, PID 1) ── dockerd ── containerd
//	  │                               ├─ docker-proxy …
//	  └─ docker (the CLI, outside)    └─ shim ── container
//
// The engine's host has a pure cgroup v2 hierarchy, whatever the real host has;
// its root is the cgroup that the caller passes. It needs the overlay filesystem,
// cgroup v2, and unshare, nsenter and mount (util-linux).
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
	"fairlead/internal/escape"
)

// startLimit is how long the engine may take until it answers, and how long it may
// be silent when it starts again.
const startLimit = 2 * time.Minute

// Options say what to run and where.
type Options struct {
	// Netns is the network namespace of the engine's host; nil means the caller's.
	Netns *os.File
	// Enter is put before the command that creates the namespaces, such as nsenter
	// with its flags, for an engine in another mount namespace.
	Enter []string
	// Cgroup is an open cgroup v2 directory without processes. It is the engine's
	// /sys/fs/cgroup. The caller removes it, and what is left in it, after the
	// engine has ended.
	Cgroup *os.File
	// Accounted is an open cgroup v2 directory within Cgroup where the engine's
	// processes run; if nil, Start creates one.
	Accounted *os.File
	// Programs is a directory with dockerd, docker-proxy and other programs that
	// are preferred to those in PATH; empty means PATH alone.
	Programs string
	// Flags are additional flags for dockerd. Those for the locations of its files
	// are set already.
	Flags []string
}

// Engine is a private Docker engine.
type Engine struct {
	opt    Options
	holder *child.Process
	// in closes the holder's standard input, which ends the holder.
	in    io.Closer
	group *os.File
	// daemon is dockerd, behind the nsenter that started it.
	daemon *child.Process
	log    tailBuffer
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
	if err := e.startHost(ctx, limited); err != nil {
		return e, err
	}
	return e, e.startDaemon(ctx, limited)
}

// PID returns the process id of the holder in the caller's PID namespace. Its
// namespaces are the engine's host.
func (e *Engine) PID() int { return e.holder.Cmd.Process.Pid }

// Root returns the root directory of the engine's host, as a path for the caller.
func (e *Engine) Root() string { return fmt.Sprintf("/proc/%d/root", e.PID()) }

// Command returns a command that runs on the engine's host: its process is in the
// engine's namespaces and ends with them. A relative name is one of the engine's
// programs, or is in PATH. PR_SET_PDEATHSIG is not set, so the command may be
// started from any thread.
func (e *Engine) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	enter := []string{"--target", fmt.Sprint(e.PID()), "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup", "--",
		name}
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
	cmd.Env = e.environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(e.group.Fd())}
	return cmd
}

// Docker returns a command that runs the docker CLI against the engine, outside of
// the engine's host. It reads no user's configuration.
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
		return "", fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, escape.OneLine(said.String()))
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// Stop ends the engine at once, with all processes on its host.
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

// environ returns the caller's environment with the engine's programs first in
// PATH, without variables that make the CLI connect to another engine.
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

// program returns the path of one of the engine's programs, or its bare name if it
// is to be found in PATH.
func (e *Engine) program(name string) string {
	own := filepath.Join(e.opt.Programs, name)
	if _, err := os.Stat(own); e.opt.Programs == "" || err != nil {
		return name
	}
	return own
}

// setUpHost prepares the engine's host and waits until its standard input ends.
// The shell stays process 1, so it reaps the orphans of the engine's shims.
const setUpHost = `
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

// startHost starts the holder and waits until the host is ready. The host lives as
// long as ctx; limited bounds the start.
func (e *Engine) startHost(ctx, limited context.Context) error {
	args := append(e.opt.Enter[:len(e.opt.Enter):len(e.opt.Enter)], "unshare", "--mount", "--cgroup", "sh", "-ec",
		setUpHost)
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
	if e.holder, err = child.Start(ctx, cmd,
		child.Place{Netns: e.opt.Netns, Cgroup: e.opt.Cgroup, Contained: true}); err != nil {
		return err
	}
	e.in = in
	defer context.AfterFunc(limited, func() { _ = e.holder.Kill() })()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		_ = e.holder.Kill() // its output is complete only after it has ended
		return fmt.Errorf("create the engine's host: %w: %s", errors.Join(err, limited.Err()), e.log.text())
	}
	if e.group = e.opt.Accounted; e.group == nil {
		e.group, err = os.Open(filepath.Join(e.opt.Cgroup.Name(), "engine"))
	}
	return err
}
