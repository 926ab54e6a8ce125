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
	"fairlead/test/place"
	"fairlead/test/process"
)

// workerRole is the role of a process that serves in a separate cgroup.
const workerRole = "worker"

// work is one command for the process.
type work struct {
	Name      string
	Addresses []string
	// If Ask is set, the process sends this request instead.
	Ask *question
}

// question is a request for a name, sent to a port.
type question struct {
	Proto model.Proto
	To    netip.AddrPort
}

// workerMain listens, and listens again for each command on its input, until the input ends. In
// between it sends the requests that it receives.
func workerMain() int {
	var listening []*place.Server
	for in := json.NewDecoder(os.Stdin); ; {
		var do work
		if err := in.Decode(&do); err != nil {
			return 0
		}
		if do.Ask != nil {
			name, _, err := ask(currentPlace, do.Ask.Proto, do.Ask.To)
			fmt.Println(name, err)
			continue
		}
		for _, s := range listening {
			s.Close()
		}
		var err error
		if listening, err = do.begin(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println("ready")
	}
}

// currentPlace runs a function in the caller's namespace.
func currentPlace(fn func() error) error { return fn() }

// begin listens on all addresses and answers.
func (do work) begin() (all []*place.Server, err error) {
	for _, at := range do.Addresses {
		s, err := place.Open(currentPlace, at, replies(do.Name))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// newCgroup creates a cgroup that is removed after the test.
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

// startWorkloads starts the workloads of the publishes: web and old. old has only IPv4. As a process of the
// host, it listens only on IPv4. employ returns the workloads that are processes.
func startWorkloads(t *testing.T, w *topology.World, s model.State) []*worker {
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

// listen makes the process listen, or listen again, and waits until it listens. Open TCP
// conversations continue.
func (w *worker) listen() error {
	line, err := w.notify(w.do)
	if line != "ready" {
		return fmt.Errorf("worker %s: %s %v", w.do.Name, line, err)
	}
	return nil
}

// ask makes the process send a request, and returns the name of the server that answers.
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
