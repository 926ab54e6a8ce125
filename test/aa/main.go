// Command aa measures how often the interval of `fairlead lab compare` with the session
// component is wrong: it compares reports of the same path with each other, so that every
// interval that excludes 1 is an error.
//
//	go run ./test/aa [-comparisons 40] [-sessions 3] [-path nat] [-workload tcp-bulk] FAIRLEAD
//
// With the default flags it takes about ten minutes on an idle machine, and ends after 15.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"fairlead/internal/lab/report"
	"fairlead/internal/lab/result"
)

const (
	// limit is how long everything may take.
	limit = 15 * time.Minute
	// allowed is the share of the comparisons that may exclude 1: 4 of 40.
	allowed = 0.1
)

// options are the flags.
type options struct {
	binary, path, workload string
	comparisons, sessions  int
}

// mistakes counts the wrong intervals of one figure.
type mistakes struct {
	figure                    string
	compared, within, session int
}

func main() {
	var o options
	flag.IntVar(&o.comparisons, "comparisons", 40, "number of comparisons")
	flag.IntVar(&o.sessions, "sessions", 3, "sessions of each report")
	flag.StringVar(&o.path, "path", "nat", "path")
	flag.StringVar(&o.workload, "workload", "tcp-bulk", "workload")
	flag.Parse()
	o.binary = flag.Arg(0)
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "aa: name the binary of fairlead")
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, limit)
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "aa:", err)
		os.Exit(1)
	}
}

// run makes the comparisons and prints the result.
func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "fairlead-aa-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var all []mistakes
	for n := range o.comparisons {
		changes, err := compare(ctx, o, dir, n)
		if err != nil {
			return fmt.Errorf("comparison %d of %d: %w", n+1, o.comparisons, err)
		}
		for _, c := range changes {
			if c.Path == o.path && c.SessionHigh > 0 {
				all = count(all, c)
			}
		}
		fmt.Fprintf(os.Stderr, "\r%d/%d", n+1, o.comparisons)
	}
	fmt.Fprintln(os.Stderr)
	return print(all, o)
}

// compare measures two reports and compares them.
func compare(ctx context.Context, o options, dir string, n int) ([]report.Change, error) {
	var files []string
	for i := range 2 {
		file := filepath.Join(dir, fmt.Sprint(i, ".json"))
		files = append(files, file)
		cmd := exec.CommandContext(ctx, o.binary, "lab", "run", o.path, "--client", "remote", "--workload", o.workload,
			"--sessions", fmt.Sprint(o.sessions), "--rounds", "2", "--duration", "50ms", "--seed", fmt.Sprint(2*n+i+1),
			"--json", file)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, text)
		}
	}
	text, err := exec.CommandContext(ctx, o.binary, "lab", "compare", "-o", "json", files[0], files[1]).Output()
	if err != nil {
		return nil, err
	}
	var c report.Comparison
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	return c.Changes, nil
}

// count adds a comparison to its figure.
func count(all []mistakes, c report.Change) []mistakes {
	at := slices.IndexFunc(all, func(e mistakes) bool { return e.figure == string(c.Metric) })
	if at < 0 {
		at = len(all)
		all = append(all, mistakes{figure: string(c.Metric)})
	}
	e := &all[at]
	e.compared++
	if c.Low > 1 || c.High < 1 {
		e.within++
	}
	if c.SessionLow > 1 || c.SessionHigh < 1 {
		e.session++
	}
	return all
}

// print prints a table, and returns an error if the main figure has more wrong intervals than are
// allowed.
func print(all []mistakes, o options) error {
	fmt.Printf("%d A/A comparisons of %d sessions each, path %s, %s: the 95 %% interval excludes 1\n\n", o.comparisons,
		o.sessions, o.path, o.workload)
	fmt.Println("| figure | comparisons | without the session component | with it |\n|---|---|---|---|")
	var failed error
	for _, e := range all {
		fmt.Printf("| `%s` | %d | %d | %d |\n", e.figure, e.compared, e.within, e.session)
		if e.figure == string(result.Main(o.workload)) && float64(e.session) > allowed*float64(o.comparisons) {
			failed = fmt.Errorf("%s: %d of %d intervals with the session component exclude 1, want at most %.0f", e.figure,
				e.session, e.compared, allowed*float64(o.comparisons))
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("no figure of %s was compared", o.path)
	}
	return failed
}
