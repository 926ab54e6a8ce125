package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"fairlead/internal/escape"
	"fairlead/internal/lab/report"

	"golang.org/x/sys/unix"
)

// printer is the standard output or the standard error. Names that others chose
// are hostile, so it is no io.Writer: all that is printed goes through a method
// that escapes what would control a terminal or begin a line of its own.
type printer struct{ to io.Writer }

// line prints one line, whatever its arguments hold.
func (p printer) line(format string, args ...any) error {
	_, err := fmt.Fprintln(p.to, escape.Line(fmt.Sprintf(format, args...)))
	return err
}

// note is line for what is said beside the result: if it cannot be printed, the
// command goes on.
func (p printer) note(format string, args ...any) { _ = p.line(format, args...) }

// lines prints each text on a line of its own.
func (p printer) lines(all ...string) error {
	for _, text := range all {
		if err := p.line("%s", text); err != nil {
			return err
		}
	}
	return nil
}

// table prints rows in columns.
func (p printer) table(rows [][]string) error {
	w := tabwriter.NewWriter(p.to, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(cells(row), "\t"))
	}
	return w.Flush()
}

// cells escapes the cells of a row.
func cells(row []string) []string {
	all := make([]string, len(row))
	for i, cell := range row {
		all[i] = escape.Line(cell)
	}
	return all
}

// json prints a value for machines, which read exactly what it holds.
func (p printer) json(v any) error {
	enc := json.NewEncoder(escape.JSON(p.to))
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// jsonLine prints a value for machines on one line.
func (p printer) jsonLine(v any) error { return json.NewEncoder(escape.JSON(p.to)).Encode(v) }

// document returns what writes text of several lines. Whoever writes there
// makes sure that no name in it holds a line break.
func (p printer) document() io.Writer { return escape.Writer(p.to) }

// jsonDocument returns what writes JSON.
func (p printer) jsonDocument() io.Writer { return escape.JSON(p.to) }

// styled is document for the laboratory's tables, which have colours.
func (p printer) styled() io.Writer { return escape.Styled(p.to, report.Styles...) }

// error prints an error. What it holds beyond one line is indented.
func (p printer) error(err error) {
	text := escape.Text(strings.ReplaceAll(escape.Error(err), "\n", "\n  "))
	fmt.Fprintln(p.to, "fairlead:", text)
}

// width reports whether this is a terminal, and its width in columns.
func (p printer) width() (columns int, terminal bool) {
	f, isFile := p.to.(*os.File)
	if !isFile {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}

// colored reports whether this takes colours: a terminal, unless NO_COLOR is
// set (no-color.org) or the terminal is dumb.
func (p printer) colored() bool {
	_, terminal := p.width()
	return terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
