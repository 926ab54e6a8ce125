// Package engines starts private Docker engines for tests: Debian's of 2022, and one of 2026 that
// test/install-engine builds. Everything that a test starts is removed when the test ends. The
// machine's own Docker is not touched.
//
//	for name, programs := range engines.All(t) {
//		t.Run(name, func(t *testing.T) {
//			e := engines.Start(t, dockerd.Options{Netns: host, Programs: programs})
//			engines.Image(t, e, "lab", binary)
//			out, err := e.Run(t.Context(), "run", "--rm", "lab", "version")
//			daemon := e.Command(t.Context(), binary, "daemon") // beside dockerd
//		})
//	}
//
// A plugin's socket must be in the directory dockerd.Plugins of the engine's host. A process that
// e.Command starts sees that directory as /run/docker/plugins, and the test sees it below e.Root().
// e.Signal and e.Restart end dockerd and start it again.
package engines

import (
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"fairlead/internal/lab/dockerd"
	"fairlead/internal/lab/ledger"
)

// All returns the engines by name, each with the directory of its programs. It builds the new
// engine first if it does not exist.
func All(t *testing.T) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if yield("debian", "") {
			yield("2026", New(t))
		}
	}
}

// New returns the directory of the new engine's programs.
func New(t *testing.T) string {
	t.Helper()
	module, err := exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("find the project's folder: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(string(module)), "test", "install-engine"))
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build the engine: %v\n%s", err, &said)
	}
	return strings.TrimSpace(string(out))
}

// started makes the names of cgroups unique.
var started atomic.Int64

// Start starts an engine. When the test ends, the engine is stopped and its cgroup is removed. If
// the test has failed, the engine's log is printed.
func Start(t *testing.T, opt dockerd.Options) *dockerd.Engine {
	t.Helper()
	groups, err := ledger.NewGroups(fmt.Sprintf("engine-%d", started.Add(1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := groups.Close(); err != nil {
			t.Error(err)
		}
	})
	if opt.Cgroup, err = os.Open(groups.Path()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opt.Cgroup.Close() })
	// The test's context ends before its cleanups, which may need the engine.
	e, err := dockerd.Start(context.WithoutCancel(t.Context()), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("dockerd's log:\n%s", e.Log())
		}
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// Image imports a static program as an image with the given name.
func Image(t *testing.T, e *dockerd.Engine, name, program string) {
	t.Helper()
	if err := e.Import(t.Context(), name, program); err != nil {
		t.Fatal(err)
	}
}
