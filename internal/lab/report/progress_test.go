package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/lab/result"
)

var progressCase = result.Case{Path: "nat", Client: result.Remote, Workload: "tcp-bulk"}

func TestProgressOnATerminal(t *testing.T) {
	var out strings.Builder
	clock := time.Unix(0, 0)
	p := &Progress{total: 10, started: clock, columns: func() int { return 100 },
		write: func(s string) { out.WriteString(s) }, now: func() time.Time { return clock }}
	p.Start(0, 0, 1, 5, progressCase)
	p.Done()
	clock = clock.Add(3 * time.Second)
	p.Start(0, 0, 2, 5, progressCase)
	p.Clear()
	want := "\r\x1b[Kround 1/5  nat  bulk, client across the wire" +
		"\r\x1b[Kround 2/5  nat  bulk, client across the wire  about 27s left\r\x1b[K"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestProgressFitsTheTerminal(t *testing.T) {
	var out strings.Builder
	p := &Progress{total: 1, columns: func() int { return 20 }, write: func(s string) { out.WriteString(s) },
		now: time.Now}
	p.Start(0, 0, 1, 5, progressCase)
	if got := strings.TrimPrefix(out.String(), "\r\x1b[K"); width(got) != 19 {
		t.Errorf("%d columns: %q", width(got), got)
	}
}

func TestProgressWritesOnlyToTerminals(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := NewProgress(f, 3)
	p.Start(0, 0, 1, 1, progressCase)
	p.Done()
	p.Clear()
	if info, err := f.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("it wrote %v (%v)", info.Size(), err)
	}
}
