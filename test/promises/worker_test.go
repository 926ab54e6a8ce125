package promises_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"fairlead/internal/cgroup"
	"fairlead/internal/child"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/process"
)

// workerRole is a process that serves in a separate cgroup.
const workerRole = "worker"

// work is the job of the process, on its standard input.
type work struct {
	Name      string
	Addresses []string
	// Ask makes it send this request instead.
	Ask *question
}

// question is a request for a name, sent to a port.
type question struct {
	Proto model.Proto
	To    netip.AddrPort
}

// workerMain listens, and listens again for each command on its input, until the
// input ends. In between it sends the requests that it is given.
func workerMain() int {
	var listening []server
	for in := json.NewDecoder(os.Stdin); ; {
		var do work
		if err := in.Decode(&do); err != nil {
			return 0
		}
		if do.Ask != nil {
			name, _, err := ask(here, do.Ask.Proto, do.Ask.To)
			fmt.Println(name, err)
			continue
		}
		for _, s := range listening {
			s.close()
		}
		var err error
		if listening, err = do.begin(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println("ready")
	}
}

// here is the caller's place.
func here(fn func() error) error { return fn() }

// begin listens on all addresses and answers.
func (do work) begin() (all []server, err error) {
	for _, at := range do.Addresses {
		s, err := listen(at)
		if err != nil {
			return nil, err
		}
		s.answer(do.Name)
		all = append(all, s)
	}
	return all, nil
}

// newCgroup makes a cgroup that is removed after the test.
func newCgroup(t *testing.T, name string) string {
	t.Helper()
	root, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	path, err := os.MkdirTemp(root, "promises-"+name+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	})
	return path
}

// employ starts the workloads that publishes are for: web and old. old has IPv4
// only, or listens on IPv4 only if it is a process of the host. It returns those
// that are processes.
func employ(t *testing.T, w *topology.World, s model.State) []*worker {
	t.Helper()
	var workers []*worker
	for name, host := range map[string]string{web: "", old: "0.0.0.0"} {
		e, _ := s.Endpoint(name)
		if e.Cgroup == "" {
			serve(t, func(fn func() error) error { return w.DoSandbox(name, fn) }, name, addresses(name, host)...)
			continue
		}
		it := startWorker(t, w, e.Cgroup, work{Name: name, Addresses: addresses(name, host)})
		if err := it.listen(); err != nil {
			t.Fatal(err)
		}
		workers = append(workers, it)
	}
	return workers
}

// worker is a process that serves.
type worker struct {
	do   work
	in   *json.Encoder
	out  *bufio.Reader
	busy sync.Mutex
}

// startWorker starts a process on the server host, in the cgroup.
func startWorker(t *testing.T, w *topology.World, cgroup string, do work) *worker {
	t.Helper()
	dir, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	p := process.Run(t, workerRole, child.Place{Netns: w.Server().Netns, Cgroup: dir})
	return &worker{do: do, in: json.NewEncoder(p.In), out: p.Out}
}

// listen makes the process listen, again if it does already, and waits until it
// does. Open TCP conversations continue.
func (w *worker) listen() error {
	line, err := w.notify(w.do)
	if line != "ready" {
		return fmt.Errorf("worker %s: %s %v", w.do.Name, line, err)
	}
	return nil
}

// ask makes the process send a request, and returns who answers it.
func (w *worker) ask(q question) (string, error) {
	line, err := w.notify(work{Ask: &q})
	name, trouble, _ := strings.Cut(line, " ")
	if err == nil && trouble != "<nil>" {
		err = errors.New(trouble)
	}
	return name, err
}

// notify sends one command to the process and returns its answer.
func (w *worker) notify(do work) (string, error) {
	w.busy.Lock()
	defer w.busy.Unlock()
	if err := w.in.Encode(do); err != nil {
		return "", fmt.Errorf("send to worker %s: %w", w.do.Name, err)
	}
	line, err := w.out.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}
