package measure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"fairlead/internal/cli/command"
	"fairlead/internal/escape"
	"fairlead/internal/lab/report"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
	"fairlead/internal/lab/tool"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// reportFiles are the files to which a report is written, in addition to the table.
type reportFiles struct{ json, html, bench, iperf3 string }

func (r *reportFiles) flags(f *pflag.FlagSet) {
	f.StringVar(&r.json, "json", "", "`file` for the whole report with each run's raw data, as JSON")
	f.StringVar(&r.html, "html", "", "`file` for the report as one self-contained HTML page")
	f.StringVar(&r.bench, "bench", "", "`file` for the results as Go benchmark lines, for benchstat")
	f.StringVar(&r.iperf3, "iperf3", "", "`file` for the bulk runs as iperf3 JSON documents, one per run")
}

// writers returns the function that writes each given file.
func (r reportFiles) writers() map[string]func(io.Writer, *result.Report) error {
	all := map[string]func(io.Writer, *result.Report) error{
		r.json: report.WriteJSON, r.html: report.HTML, r.bench: report.Bench, r.iperf3: writeIperf3,
	}
	delete(all, "")
	return all
}

// check returns an error if a file cannot be written. It is called before
// measuring.
func (r reportFiles) check() error {
	seen := map[string]bool{}
	for _, file := range []string{r.json, r.html, r.bench, r.iperf3} {
		if file == "" {
			continue
		}
		if seen[file] {
			return fmt.Errorf("write %s: the file is given for two reports: name different files", file)
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
			return errors.New("it is a directory")
		}
		return unix.Access(file, unix.W_OK)
	}
	tmp, err := beside(file)
	if err != nil {
		return err
	}
	return errors.Join(tmp.Close(), os.Remove(tmp.Name()))
}

// inPlace reports whether a file must be written in place. A device, a pipe or a
// symbolic link such as /dev/stdout must not be replaced by a new file.
func inPlace(file string) bool {
	info, err := os.Lstat(file)
	return err == nil && !info.Mode().IsRegular()
}

// beside creates a temporary file that can be renamed to file.
func beside(file string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(file), ".fairlead-*")
}

// show prints the report and writes it to the files. A regular file is replaced
// atomically: the report is written to a temporary file, which is then renamed.
func show(a *command.App, rep *result.Report, files reportFiles) error {
	for file, write := range files.writers() {
		if err := writeWhole(file, func(w io.Writer) error { return write(w, rep) }); err != nil {
			return err
		}
	}
	if a.Output == "json" {
		return report.WriteJSON(a.Out.JSONDocument(), rep)
	}
	escape.All(rep) // it contains names from files and of processes
	width, _ := a.Out.Width()
	return report.Table(a.Out.Styled(), rep, report.Options{Color: a.Out.Colored(), Width: width, Full: files.html})
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
		_, measured := run.Metrics[result.Throughput]
		if !measured || !strings.HasSuffix(result.Kind(run.Workload), "-bulk") {
			continue
		}
		if err := tool.WriteIperf3(w, run, rep.Host); err != nil {
			return err
		}
		written++
	}
	if written == 0 {
		return command.Usage(errors.New("the report contains no bulk run, and iperf3 files contain nothing else: leave " +
			"--iperf3 out"))
	}
	return nil
}

// readReport reads a report of `fairlead lab run --json`, or of iperf3 --json.
func readReport(file string) (*result.Report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, command.Usage(err)
	}
	rep, err := report.ReadJSON(bytes.NewReader(text))
	if err == nil {
		return rep, nil
	}
	runs, notIperf3 := tool.FromIperf3(bytes.NewReader(text))
	if notIperf3 != nil {
		return nil, command.Usage(fmt.Errorf("read %s: it is neither a report of `fairlead lab run --json` nor of iperf3 "+
			"--json: %w", file, err))
	}
	return imported(file, runs), nil
}

// imported makes a report of iperf3's runs. The file's name is used as the path,
// because iperf3 does not record one. Files that `--iperf3` wrote contain the path.
func imported(file string, runs []result.Run) *result.Report {
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	rep := &result.Report{Format: result.Format, Suite: report.Imported, Question: "What did iperf3 measure?",
		Runs: runs}
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

func newLabReport(a *command.App) *cobra.Command {
	var files reportFiles
	c := &cobra.Command{
		Use:     "report FILE",
		Short:   "Show a saved report, or the output of iperf3 --json",
		Example: "  fairlead lab report publish.json\n  fairlead lab report publish.json --html publish.html",
		Args:    command.Arguments(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			rep, err := readReport(args[0])
			if err != nil {
				return err
			}
			if err := files.check(); err != nil {
				return command.Usage(err)
			}
			return show(a, rep, files)
		},
	}
	files.flags(c.Flags())
	return c
}

func newLabCompare(a *command.App) *cobra.Command {
	return &cobra.Command{
		Use:     "compare BEFORE AFTER",
		Short:   "Show what changed between two reports",
		Example: "  fairlead lab compare before.json after.json",
		Args:    command.Arguments(cobra.ExactArgs(2)),
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
			if a.Output == "json" {
				return a.JSON(changes)
			}
			escape.All(&changes)
			width, _ := a.Out.Width()
			return report.CompareTable(a.Out.Styled(), changes, report.Options{Color: a.Out.Colored(), Width: width})
		},
	}
}
