package truth

import (
	"os"
	"sync/atomic"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/test/process"
)

// ServerRole is the role of a server that is a process of its own. Serve is its main function.
const ServerRole = "truth-server"

// Serve opens the socket of the command that it gets, and answers clients until it is killed.
func Serve() int {
	return process.Main(func(command string) error {
		s, err := parseSocket(command)
		if err != nil {
			return err
		}
		fd, err := s.open(func(fn func() error) error { return fn() })
		if err != nil {
			return err
		}
		process.Ready()
		s.serve(fd, new(atomic.Bool))
		return nil
	})()
}

// inCgroup runs the server of the socket in a cgroup of its own until the test ends.
func (s socket) inCgroup(t testing.TB, h *Host, command string) {
	t.Helper()
	parent := kerneltest.Cgroup(t, kerneltest.CgroupRoot(t))
	dir, err := os.Open(kerneltest.Cgroup(t, parent))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if s.cgroup == "drop" {
		h.Dropping = append(h.Dropping, parent)
	}
	process.Start(t, ServerRole, command, child.Place{Netns: h.Places[s.place].File(), Cgroup: dir})
}
