package health

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"fairlead/internal/cgroup"
	"fairlead/internal/model"
)

func script(text string) model.Check {
	return model.Check{Type: model.CheckExec, Command: []string{"/bin/sh", "-c", text, "check"}}
}

func TestExec(t *testing.T) {
	at := Target{Service: "web", Real: netip.MustParseAddrPort("[2001:db8::1]:80")}
	expect(t, check(t, script(`echo "$FAIRLEAD_SERVICE at $1 $2"`), Means{}, at), true,
		"exit status 0: web at 2001:db8::1 80")
	expect(t, check(t, script(`echo broken >&2; exit 3`), Means{}, at), false, "exit status 3: broken")
	expect(t, check(t, script(`kill -9 $$`), Means{}, at), false, "signal: killed: no output")
	expect(t, check(t, script(`yes`+"`printf '\\033'`"+` | head -c 3000000`), Means{}, at), true, "exit status 0: ")
	if r := check(t, model.Check{Type: model.CheckExec, Command: []string{"/nonexistent"}}, Means{}, at); !r.Void {
		t.Errorf("a command that does not exist: %+v", r)
	}
}

// TestExecGroup checks that all processes that the command has started end with it,
// also those in another session, and that its cgroup is removed.
func TestExecGroup(t *testing.T) {
	for _, c := range []struct {
		name, text string
		cancel, ok bool
		detail     string
	}{
		{"too slow", "sleep 1000 & echo waits >&3; wait", true, false, "the command took too long"},
		{"left behind", "sleep 1000 & echo goes >&3; echo done", false, true, "exit status 0: done"},
		{"left behind, with another output", "sleep 1000 >/dev/null 2>&1 & echo goes >&3; echo done", false, true,
			"exit status 0: done"},
		{"left behind by a failure", "sleep 1000 & echo goes >&3; exit 3", false, false, "exit status 3: no output"},
		{"too slow, in a new session", "setsid sh -c 'echo waits >&3; sleep 1000' & wait", true, false,
			"the command took too long"},
		{"left behind in a new session", "setsid sleep 1000 & echo goes >&3; echo done", false, true,
			"exit status 0: done"},
		{"left behind by a parent in a new session", "setsid sh -c 'setsid sleep 1000 & echo goes >&3'; echo done",
			false, true, "exit status 0: done"},
		{"left behind by a killed process", "sleep 1000 & echo goes >&3; kill -9 $$", false, false,
			"signal: killed: no output"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, group := range map[string]func() (*cgroup.Group, error){
				"cgroup": newCheckGroup,
				"mark":   func() (*cgroup.Group, error) { return nil, cgroup.ErrNone },
			} {
				t.Run(name, func(t *testing.T) {
					execGroup(t, group, c.text, c.cancel, c.ok, c.detail)
				})
			}
		})
	}
	root, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(root, fmt.Sprint(checkGroups, os.Getpid(), "-*")))
	if err != nil || len(left) > 0 {
		t.Errorf("cgroups remain: %v, %v", left, err)
	}
}

// execGroup runs a command that has opened a FIFO as descriptor 3 and writes a line to
// it, and waits until no process has the FIFO open. If cancel is set, the check's
// context ends after that line.
func execGroup(t *testing.T, group func() (*cgroup.Group, error), text string, cancelled, ok bool, detail string) {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "alive")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	alive := make(chan error, 1)
	go func() {
		f, err := os.Open(fifo)
		if err != nil {
			alive <- err
			return
		}
		defer f.Close()
		from := bufio.NewReader(f)
		if _, err = from.ReadString('\n'); err == nil && cancelled {
			cancel()
		}
		_, err = io.Copy(io.Discard, from)
		alive <- err
	}()
	one := execCheck{script("exec 3>" + fifo + "; " + text).Command, group}
	expect(t, one.Check(ctx, Target{Real: netip.MustParseAddrPort("192.0.2.1:80")}), ok, detail)
	if err := <-alive; err != nil {
		t.Error(err)
	}
}
