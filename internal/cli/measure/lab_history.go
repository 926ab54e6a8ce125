package measure

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"fairlead/internal/cli/command"
	"fairlead/internal/escape"
	"fairlead/internal/lab/expr"
	"fairlead/internal/lab/history"
	"fairlead/internal/lab/report"
	"fairlead/internal/lab/result"

	"github.com/spf13/cobra"
)

// historyFlag describes the flag with the file.
const historyFlag = "`file` of the history (default: fairlead/lab-history.jsonl in $XDG_STATE_HOME or ~/.local/state)"

// historyFile returns the file of the flag, or the default.
func historyFile(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	return history.DefaultFile()
}

func newLabHistory(a *command.App) *cobra.Command {
	var file, html string
	c := &cobra.Command{
		Use:   "history [SUITE] [PATH…]",
		Short: "Show how each ratio changed over the recorded sessions",
		Long: "Show every ratio of the recorded sessions over time, with the kernel and the version of Fairlead, and since\n" +
			"when it is better or worse. `fairlead lab run --history` and `fairlead lab record` record sessions.\n" +
			"Only sessions of the same suite, window length and machines are compared.",
		Example: "  fairlead lab history\n" +
			"  fairlead lab history publish ebpf nat --html history.html\n" +
			"  fairlead lab record publish.json",
		RunE: func(_ *cobra.Command, args []string) error { return showHistory(a, file, html, args) },
	}
	c.Flags().StringVar(&html, "html", "", "`file` for the history as one self-contained HTML page")
	c.Flags().StringVar(&file, "file", "", historyFlag)
	return c
}

func newLabRecord(a *command.App) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:     "record REPORT…",
		Short:   "Record saved reports in the history",
		Example: "  fairlead lab record publish.json\n  fairlead lab record --file history.jsonl before.json after.json",
		Args:    command.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			to, err := historyFile(file)
			if err != nil {
				return command.Usage(err)
			}
			for _, name := range args {
				rep, err := readReport(name)
				if err != nil {
					return err
				}
				if err := record(a, to, rep); err != nil {
					return fmt.Errorf("record %s: %w", name, err)
				}
			}
			return nil
		},
	}
	c.Flags().StringVar(&file, "file", "", historyFlag)
	return c
}

// record adds a report to a history. A report that the history has already is not an error.
func record(a *command.App, file string, rep *result.Report) error {
	err := history.Append(file, rep)
	if errors.Is(err, history.ErrRecorded) {
		a.Err.Note("fairlead: %s: %v", file, err)
		return nil
	}
	return err
}

// showHistory shows the entries that can be read. The error names the lines that cannot.
func showHistory(a *command.App, file, html string, args []string) error {
	file, err := historyFile(file)
	if err != nil {
		return command.Usage(err)
	}
	entries, damaged := history.Read(file)
	if len(entries) == 0 {
		if damaged == nil {
			damaged = fmt.Errorf("read history: %s has no entry: record one with `fairlead lab run --history`", file)
		}
		return command.Usage(damaged)
	}
	if a.Output != "json" {
		escape.All(&entries) // the file may contain anything
	}
	groups := history.Groups(entries)
	suites, paths := divided(groups, args)
	courses := report.Courses(groups, suites, paths)
	if len(courses) == 0 {
		return errors.Join(command.Usage(errors.New("no recorded session has a ratio of these suites and paths: "+
			"`fairlead lab history` without arguments shows all")), damaged)
	}
	if html != "" {
		err := writeWhole(html, func(w io.Writer) error { return report.HistoryHTML(w, groups, courses) })
		if err != nil {
			return err
		}
	}
	if a.Output == "json" {
		return errors.Join(a.JSON(courses), damaged)
	}
	width, _ := a.Out.Width()
	return errors.Join(report.HistoryTable(a.Out.Styled(), groups, courses, report.Options{Color: a.Out.Colored(),
		Width: width}), damaged)
}

// divided divides the arguments into suites of the history and paths.
func divided(groups []history.Group, args []string) (suites, paths []string) {
	for _, arg := range args {
		if slices.ContainsFunc(groups, func(g history.Group) bool { return g.Setup.Suite == arg }) {
			suites = append(suites, arg)
		} else {
			paths = append(paths, arg)
		}
	}
	return suites, paths
}

// labHistory holds the flags of `lab run` about the history.
type labHistory struct {
	record bool
	file   string
	// entries are those of the file, if a condition refers to them.
	entries []history.Entry
	// conditions are those of --fail-if.
	conditions []*expr.Expr
}

// prepare finds the file and checks that it can be used, before measuring. Conditions get the
// entries that measure the same as the planned session.
func (h *labHistory) prepare(planned result.Report) error {
	uses := slices.ContainsFunc(h.conditions, func(e *expr.Expr) bool { return e.UsesHistory() })
	if !uses && !h.record {
		return nil
	}
	var err error
	if h.file, err = historyFile(h.file); err != nil {
		return err
	}
	if h.entries, err = history.Read(h.file); err != nil && (uses || !errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	alike := slices.DeleteFunc(slices.Clone(h.entries), func(e history.Entry) bool {
		return !history.SetupOf(&e.Report).Measures(history.SetupOf(&planned))
	})
	h.use(func(c result.Case, m result.Metric) (rows []result.Summary) {
		for _, g := range history.Groups(alike) {
			for _, row := range g.Rows(c, m) {
				if row != nil {
					rows = append(rows, *row)
				}
			}
		}
		return rows
	})
	return nil
}

// use sets the earlier sessions of all conditions.
func (h *labHistory) use(past expr.Past) {
	for _, e := range h.conditions {
		e.SetPast(past)
	}
}

// judge evaluates the conditions against the earlier sessions, and then records the report.
func (h *labHistory) judge(a *command.App, rep *result.Report) error {
	h.use(func(c result.Case, m result.Metric) []result.Summary {
		return history.Past(h.entries, rep, c, m)
	})
	err := judge(a, rep, h.conditions)
	if h.record {
		err = errors.Join(err, record(a, h.file, rep))
	}
	return err
}
