package arch_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/test/arch"
)

// TestGoroutinesOfTheServingProcess: a panic on one goroutine ends the process, and with it the connections
// of all clients. So package goroutine starts each one.
func TestGoroutinesOfTheServingProcess(t *testing.T) {
	found, err := arch.Goroutines("../..", "internal/gateway", []string{
		"internal/gateway/goroutine",
		"internal/gateway/h1/h1test",             // tests
		"internal/gateway/acme",                  // the controlling process
		"internal/gateway/serving/controller.go", // the controlling process, which starts another one
		"internal/gateway/serving/process.go",
		"internal/gateway/serving/signal.go",
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) > 0 {
		t.Errorf("these start goroutines that do not recover (use package goroutine):\n%s", strings.Join(found, "\n"))
	}
}

func TestGoroutinesAreFound(t *testing.T) {
	root := t.TempDir()
	text := `package a

func f() {
	go f()
	wait.Go(f)
	time.AfterFunc(0, f)
	context.AfterFunc(nil, f)
	goroutine.Go("task", f)
	group.Go("task", f)
	x.AfterFunc(f)
}
`
	for _, name := range []string{"a.go", "a_test.go", "except.go"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := arch.Goroutines(root, ".", []string{"except.go"})
	if want := []string{"a.go:4", "a.go:5", "a.go:6", "a.go:7"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("found %v, %v, want %v", found, err, want)
	}
}
