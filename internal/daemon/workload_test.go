package daemon_test

import (
	"net"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/kernel/kerneltest"
)

// group creates a cgroup that the test's cleanup removes. in runs a function with the
// test process in that cgroup.
func (w *world) group() (path string, in func(func() error)) {
	w.Helper()
	path = kerneltest.Cgroup(w, kerneltest.CgroupRoot(w))
	return path, func(fn func() error) {
		w.Helper()
		kerneltest.InCgroup(w, path, func() {
			if err := w.host.Do(fn); err != nil {
				w.Error(err)
			}
		})
	}
}

// TestWorkloadNeedsRestart: a workload needs a restart if it bound a port before it
// was published, and not if it binds the port later.
func TestWorkloadNeedsRestart(t *testing.T) {
	w := newWorld(t).start()
	before := w.snapshot()
	for _, bound := range []bool{false, true} {
		path, in := w.group()
		var open []net.Listener
		bind := func() {
			in(func() error {
				l, err := net.Listen("tcp", ":80")
				if err == nil {
					open = append(open, l)
				}
				return err
			})
		}
		if bound {
			bind()
		}
		shop := api.Workload{Name: "shop", Ref: "container:shop", Cgroup: path, Publishes: published("", 8080)}
		if _, err := w.Admit(shop); err != nil {
			t.Fatal(err)
		}
		check := func() {
			needsRestart, certain, err := w.NeedsRestart("shop")
			problem := w.Attachments()[0].Problem
			if err != nil || !certain || needsRestart != bound || strings.Contains(problem, "restart it") != bound {
				t.Errorf("bound before: %t, needs restart: %t, %q, %v", bound, needsRestart, problem, err)
			}
		}
		check()
		if !bound {
			bind()
			check()
			if err := w.host.Do(func() error { return dial("127.0.0.1:8080") }); err != nil {
				t.Error(err)
			}
		}
		for _, l := range open {
			l.Close()
		}
		if err := w.Dismiss("shop"); err != nil {
			t.Error(err)
		}
		w.unchanged(before)
	}
}
