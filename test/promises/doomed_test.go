package promises_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/promise"
	"fairlead/internal/proxy"
	"fairlead/internal/store"

	"golang.org/x/sys/unix"
)

// engineRole is a process that runs an engine and waits to be killed.
const engineRole = "doomed-engine"

// order is what the process is told to do, on its standard input.
type order struct {
	// Server is the path of the server host's namespace.
	Server string
	// Pins is a bpffs that outlives the process.
	Pins  string
	State model.State
}

func engineMain() int {
	if err := runEngine(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runEngine sets the state, prints the proxy's process id, 0 where there is
// none, and waits.
func runEngine() error {
	var do order
	if err := json.NewDecoder(os.Stdin).Decode(&do); err != nil {
		return err
	}
	facts, err := kernel.Probe()
	if err != nil {
		return err
	}
	h, err := kernel.Open(do.Server, kernel.Options{Pins: do.Pins})
	if err != nil {
		return err
	}
	pid := 0
	e := engine.New(engine.Config{Kernel: h, Store: &store.Memory{}, Facts: facts,
		StartProxy: func(ctx context.Context) (engine.Proxy, error) {
			p, err := proxy.Start(ctx, child.Place{Netns: h.Netns()})
			if err == nil {
				pid = p.PID()
			}
			return p, err
		}})
	if _, err := e.Set(context.Background(), do.State); err != nil {
		return err
	}
	fmt.Println(pid)
	return unix.Pause()
}

// doomed is a world whose engine is a process of its own, to be killed when
// everyone who watches is ready.
type doomed struct {
	world *topology.World
	ready sync.WaitGroup
	// dead is closed when engine and proxy are gone, and the workloads that
	// are the host's processes have started to listen anew; err says if not.
	dead chan struct{}
	err  error
}

func newDoomed(t *testing.T, facts plan.Facts, d model.Driver, ways []model.Via) *doomed {
	t.Helper()
	w := newWorld(t, facts)
	s := desired(t, w, d, ways)
	pins := mountPins(t)
	for i := range s.Endpoints {
		s.Endpoints[i].Sandbox = fromOutside(s.Endpoints[i].Sandbox)
	}
	process, proxyPID := startEngine(t, order{fromOutside(fmt.Sprintf("/proc/self/fd/%d", w.Server().Netns.Fd())), pins, s})
	workers := employ(t, w, s)
	watch := -1
	if proxyPID != 0 {
		var err error
		if watch, err = unix.PidfdOpen(proxyPID, 0); err != nil {
			t.Fatal(err)
		}
	}
	doom := &doomed{world: w, dead: make(chan struct{})}
	doom.ready.Add(len(ways) * len(publishProbers[promise.Survives].flavors))
	go func() {
		defer close(doom.dead)
		doom.ready.Wait()
		doom.err = kill(process, watch)
		for _, w := range workers {
			doom.err = errors.Join(doom.err, w.listen())
		}
	}()
	return doom
}

// kill ends an engine that lives until now, and waits for the end of its
// proxy if it has one.
func kill(engine *child.Process, proxy int) error {
	select {
	case <-engine.Done():
		return fmt.Errorf("the engine died before its time: %w", engine.Wait())
	default:
	}
	if err := engine.Kill(); err != nil || proxy < 0 {
		return err
	}
	defer unix.Close(proxy)
	if n, err := poll(proxy); n != 1 {
		return fmt.Errorf("the proxy outlived its engine: %v", err)
	}
	return nil
}

// mountPins mounts a bpffs that ends with the test, and returns a folder of it.
func mountPins(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		t.Fatalf("mount a bpffs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "fairlead") // the kernel may have put files into dir
}

// poll waits until the process of a pidfd has ended.
func poll(pidfd int) (int, error) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		if err != unix.EINTR {
			return n, err
		}
	}
}

// fromOutside makes a path to an open file of ours valid in our children.
func fromOutside(path string) string {
	return strings.Replace(path, "/proc/self/", fmt.Sprintf("/proc/%d/", os.Getpid()), 1)
}

// startEngine runs the process and returns it with its proxy's id.
func startEngine(t *testing.T, do order) (*child.Process, int) {
	t.Helper()
	in, err := json.Marshal(do)
	if err != nil {
		t.Fatal(err)
	}
	cmd := child.Self(engineRole)
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(in)), os.Stderr
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	process, err := child.Start(t.Context(), cmd, child.Place{})
	out.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Kill() })
	pid := 0
	line, err := bufio.NewReader(r).ReadString('\n')
	if _, scan := fmt.Sscan(line, &pid); scan != nil {
		t.Fatalf("engine process: %v %v", err, process.Wait())
	}
	return process, pid
}
