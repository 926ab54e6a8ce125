package e2e_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal whose screen can be read.
type terminal struct {
	slave  *os.File
	screen func() string
}

// newTerminal opens a terminal of 100 columns that does not change what is written.
func newTerminal(t *testing.T) terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 100}); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(master) // it ends with EIO when the last writer closes
		written <- string(text)
	}()
	return terminal{slave, func() string { slave.Close(); return <-written }}
}

const clearLine = "\r\x1b[K"

var color = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// session runs a short session with the given output streams.
func (r *room) session(stdout, stderr io.Writer) {
	r.t.Helper()
	args := append([]string{binary, "lab", "run", "nat", "proxy", "--workload", "tcp-bulk"}, short...)
	p := &process{room: r, cmd: r.command(args...)}
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	p.launch()
	if o := p.wait(); o.code != 0 {
		r.t.Fatalf("exits %d", o.code)
	}
}

func TestProgressOnATerminal(t *testing.T) {
	r := newRoom(t)
	screen := newTerminal(t)
	var table strings.Builder
	r.session(&table, screen.slave)
	lines := strings.Split(screen.screen(), clearLine)
	shown := strings.Join(lines, "\n")
	for _, want := range []string{"round 1/1", "nat", "proxy", "bulk", "left"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the progress does not contain %q:\n%s", want, shown)
		}
	}
	if last := lines[len(lines)-1]; last != "" {
		t.Errorf("the line is not cleared at the end: %q", last)
	}
	for _, line := range lines {
		if len([]rune(line)) > 99 || strings.Contains(line, "\n") {
			t.Errorf("the line does not fit the terminal: %q", line)
		}
	}
	if strings.Contains(table.String(), "\x1b") {
		t.Errorf("the table has escape sequences although its output is not a terminal:\n%q", table.String())
	}
}

func TestQuietWithoutATerminal(t *testing.T) {
	r := newRoom(t)
	var table, errs strings.Builder
	r.session(&table, &errs)
	if errs.Len() > 0 {
		t.Errorf("standard error is not a terminal, but has: %q", errs.String())
	}
	if table.Len() == 0 || strings.Contains(table.String(), "\x1b") {
		t.Errorf("the table: %q", table.String())
	}
}

// TestColors prints a report whose figures use every colour.
func TestColors(t *testing.T) {
	kept, err := filepath.Abs("../../internal/lab/report/testdata/synthetic.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		name string
		env  string
		want bool
	}{
		{"on a terminal", "TERM=xterm", true},
		{"not with NO_COLOR", "NO_COLOR=1", false},
		{"not on a dumb terminal", "TERM=dumb", false},
	} {
		t.Run(s.name, func(t *testing.T) {
			screen, r := newTerminal(t), newRoom(t)
			p := &process{room: r, cmd: r.command(binary, "lab", "report", kept)}
			p.cmd.Env = append(p.cmd.Env, s.env)
			p.cmd.Stdout, p.cmd.Stderr = screen.slave, os.Stderr
			p.launch()
			p.wait().expect(t, 0, nil)
			shown := screen.screen()
			if !strings.Contains(shown, "small packets") {
				t.Errorf("no table is shown:\n%s", shown)
			}
			if got := color.MatchString(shown); got != s.want {
				t.Errorf("colours: %v, want %v\n%q", got, s.want, shown)
			}
		})
	}
}
