package command

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

// Printer prints to the standard output or the standard error. Names that other
// programs chose can be hostile. Therefore Printer is not an io.Writer: each of
// its methods escapes control characters, and line breaks inside names.
type Printer struct{ to io.Writer }

// NewPrinter returns a Printer that prints to w.
func NewPrinter(w io.Writer) Printer { return Printer{w} }

// Line prints exactly one line: it escapes line breaks in its arguments.
func (p Printer) Line(format string, args ...any) error {
	_, err := fmt.Fprintln(p.to, escape.Line(fmt.Sprintf(format, args...)))
	return err
}

// Note prints one line beside the command's result. It ignores write errors.
func (p Printer) Note(format string, args ...any) { _ = p.Line(format, args...) }

// Lines prints one line per text.
func (p Printer) Lines(all ...string) error {
	for _, text := range all {
		if err := p.Line("%s", text); err != nil {
			return err
		}
	}
	return nil
}

// Table prints rows in columns.
func (p Printer) Table(rows [][]string) error {
	w := tabwriter.NewWriter(p.to, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(Cells(row), "\t"))
	}
	return w.Flush()
}

// Cells returns the row with each cell escaped.
func Cells(row []string) []string {
	all := make([]string, len(row))
	for i, cell := range row {
		all[i] = escape.Line(cell)
	}
	return all
}

// JSON prints a value as indented JSON. The JSON encodes control characters, so
// a parser reads the original text. Empty lists are [], never null.
func (p Printer) JSON(v any) error {
	enc := json.NewEncoder(escape.JSON(p.to))
	enc.SetIndent("", "  ")
	return enc.Encode(withLists(v))
}

// JSONLine prints a value as JSON on one line.
func (p Printer) JSONLine(v any) error {
	return json.NewEncoder(escape.JSON(p.to)).Encode(withLists(v))
}

// Document returns a writer for text of several lines. The caller must make sure
// that no name in the text contains a line break.
func (p Printer) Document() io.Writer { return escape.Writer(p.to) }

// JSONDocument returns a writer for JSON.
func (p Printer) JSONDocument() io.Writer { return escape.JSON(p.to) }

// Styled returns a writer like document that lets the laboratory's colours pass.
func (p Printer) Styled() io.Writer { return escape.Styled(p.to, report.Styles...) }

// Error prints an error. It indents all lines after the first.
func (p Printer) Error(err error) {
	text := escape.Text(strings.ReplaceAll(escape.Error(err), "\n", "\n  "))
	fmt.Fprintln(p.to, "fairlead:", text)
}

// Width returns the terminal's width in columns, and whether p is a terminal.
func (p Printer) Width() (columns int, terminal bool) {
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

// Colored reports whether to print colours: p is a terminal, NO_COLOR is not set
// (no-color.org), and TERM is not dumb.
func (p Printer) Colored() bool {
	_, terminal := p.Width()
	return terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
