package process

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestInherited checks that sockets for another process are ignored, that wrong
// numbers of names are refused, and that the environment variables are removed.
func TestInherited(t *testing.T) {
	for name, c := range map[string]struct {
		pid, count, names string
		wrong             bool
	}{
		"none":                {"", "", "", false},
		"for another process": {"1", "1", "admin", false},
		"no number":           {"", "x", "admin", true},
		"fewer than names":    {"", "1", "admin:docker", true},
		"without their names": {"", "2", "", true},
	} {
		if c.wrong {
			c.pid = pidText()
		}
		t.Setenv("LISTEN_PID", c.pid)
		t.Setenv("LISTEN_FDS", c.count)
		t.Setenv("LISTEN_FDNAMES", c.names)
		sockets, err := Inherited()
		if (err != nil) != c.wrong || len(sockets) != 0 {
			t.Errorf("%s: %v, %v", name, sockets, err)
		}
		if left, is := os.LookupEnv("LISTEN_FDS"); is {
			t.Errorf("%s: LISTEN_FDS=%s was not removed", name, left)
		}
	}
}

func pidText() string { link, _ := os.Readlink("/proc/self"); return link }

// TestJournalLinesHavePriorities checks that lines for the journal have a priority and
// no time.
func TestJournalLinesHavePriorities(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(newJournal(&out)).With("a", 1).WithGroup("g")
	log.Debug("not this")
	log.Info("ready", "time", "kept")
	log.Warn("odd")
	log.Error("two\nlines")
	const want = "<6>msg=ready a=1 g.time=kept\n<4>msg=odd a=1\n<3>msg=\"two\\nlines\" a=1\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if isJournal(f, "") || isJournal(f, "1:1") {
		t.Error("a file counts as the journal")
	}
}

func TestWatchdog(t *testing.T) {
	for _, c := range []struct {
		pid, usec string
		want      time.Duration
	}{{"", "", 0}, {"", "3000000", 3 * time.Second}, {"1", "3000000", 0}, {"", "-1", 0}, {"", "soon", 0}} {
		t.Setenv("WATCHDOG_PID", c.pid)
		t.Setenv("WATCHDOG_USEC", c.usec)
		if got := watchdog(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
