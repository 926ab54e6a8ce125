package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/lab/report"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// reportFiles are the files that a report is written to, besides the table.
type reportFiles struct{ json, html, bench, iperf3 string }

func (r *reportFiles) flags(f *pflag.FlagSet) {
	f.StringVar(&r.json, "json", "", "write everything, every run raw, to this file")
	f.StringVar(&r.html, "html", "", "write the report as one self-contained page to this file")
	f.StringVar(&r.bench, "bench", "", "write Go benchmark lines, for benchstat, to this file")
	f.StringVar(&r.iperf3, "iperf3", "", "write the bulk runs as iperf3 JSON, one document after the other, to this file")
}

// writers pairs each file that was asked for with what writes it.
func (r reportFiles) writers() map[string]func(io.Writer, *result.Report) error {
	all := map[string]func(io.Writer, *result.Report) error{
		r.json: report.WriteJSON, r.html: report.HTML, r.bench: report.Bench, r.iperf3: writeIperf3,
	}
	delete(all, "")
	return all
}

// check finds out before measuring whether the files can be written.
func (r reportFiles) check() error {
	seen := map[string]bool{}
	for _, file := range []string{r.json, r.html, r.bench, r.iperf3} {
		if file == "" {
			continue
		}
		if seen[file] {
			return fmt.Errorf("write %s: two reports cannot go to one file", file)
		}
		seen[file] = true
		if err := writable(file); err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
	}
	return nil
}

func writable(file string) error {
	if inPlace(file) {
		if info, err := os.Stat(file); err == nil && info.IsDir() {
			return errors.New("it is a folder")
		}
		return unix.Access(file, unix.W_OK)
	}
	tmp, err := beside(file)
	if err != nil {
		return err
	}
	return errors.Join(tmp.Close(), os.Remove(tmp.Name()))
}

// inPlace says that a file must be written where it is: a device, a pipe or
// a link such as /dev/stdout may not be replaced by a file of ours.
func inPlace(file string) bool {
	info, err := os.Lstat(file)
	return err == nil && !info.Mode().IsRegular()
}

// beside makes a file that can be moved to the place of the other.
func beside(file string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(file), ".fairlead-*")
}

// show prints the report and writes it to the files. A regular file is
// complete or not there: it is written beside its place and then moved.
func (a *app) show(rep *result.Report, files reportFiles) error {
	for file, write := range files.writers() {
		if err := writeWhole(file, func(w io.Writer) error { return write(w, rep) }); err != nil {
			return err
		}
	}
	if a.output == "json" {
		return report.WriteJSON(a.out.jsonDocument(), rep)
	}
	escape.All(rep) // names of a file that is read, and of processes
	width, _ := a.out.width()
	return report.Table(a.out.styled(), rep, report.Options{Color: a.out.colored(), Width: width, Full: files.html})
}

func writeWhole(file string, write func(io.Writer) error) error {
	if inPlace(file) {
		return writeTo(file, write)
	}
	tmp, err := beside(file)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	err = errors.Join(write(tmp), tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", file, err), os.Remove(tmp.Name()))
	}
	return nil
}

func writeTo(file string, write func(io.Writer) error) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// writeIperf3 writes every bulk run, one iperf3 document after the other.
func writeIperf3(w io.Writer, rep *result.Report) error {
	written := 0
	for _, run := range rep.Runs {
		if _, bulk := run.Metrics[result.Throughput]; !bulk {
			continue
		}
		if err := report.WriteIperf3(w, run, rep.Host); err != nil {
			return err
		}
		written++
	}
	if written == 0 {
		return usage(errors.New("the report holds no bulk run, and iperf3 knows nothing else: leave --iperf3 out"))
	}
	return nil
}

// readReport reads one of our reports, or what iperf3 --json printed.
func readReport(file string) (*result.Report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, usage(err)
	}
	rep, err := report.ReadJSON(bytes.NewReader(text))
	if err == nil {
		return rep, nil
	}
	runs, notIperf3 := report.FromIperf3(bytes.NewReader(text))
	if notIperf3 != nil {
		return nil, usage(fmt.Errorf("%s is neither a report of `fairlead lab run --json` nor of iperf3 --json: %w", file, err))
	}
	return imported(file, runs), nil
}

// imported makes a report of foreign runs. iperf3 does not know which path
// it took: the file's name stands for it, unless --iperf3 of ours has written
// the file.
func imported(file string, runs []result.Run) *result.Report {
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	rep := &result.Report{Format: report.Format, Suite: "iperf3", Question: "What did iperf3 measure?", Runs: runs}
	baseline := ""
	for i := range runs {
		if runs[i].Path == "" {
			runs[i].Path, runs[i].Client = name, result.Remote
		}
		if runs[i].Half > 0 {
			baseline = runs[i].Path
		}
		rep.Rounds = max(rep.Rounds, runs[i].Round)
	}
	rep.Summary = stats.Summarize(runs, baseline, 0)
	return rep
}

func newLabReport(a *app) *cobra.Command {
	var files reportFiles
	c := &cobra.Command{
		Use:     "report FILE",
		Short:   "Show a report that was kept, or what iperf3 --json printed",
		Example: "  fairlead lab report publish.json\n  fairlead lab report publish.json --html publish.html",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			rep, err := readReport(args[0])
			if err != nil {
				return err
			}
			if err := files.check(); err != nil {
				return usage(err)
			}
			return a.show(rep, files)
		},
	}
	files.flags(c.Flags())
	return c
}

func newLabCompare(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "compare BEFORE AFTER",
		Short:   "Say what changed between two reports",
		Example: "  fairlead lab compare before.json after.json",
		Args:    arguments(cobra.ExactArgs(2)),
		RunE: func(_ *cobra.Command, args []string) error {
			before, err := readReport(args[0])
			if err != nil {
				return err
			}
			after, err := readReport(args[1])
			if err != nil {
				return err
			}
			changes := report.Compare(before, after, after.Seed)
			if a.output == "json" {
				return a.json(changes)
			}
			escape.All(&changes)
			width, _ := a.out.width()
			return report.CompareTable(a.out.styled(), changes, report.Options{Color: a.out.colored(), Width: width})
		},
	}
}
