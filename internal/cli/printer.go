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

// printer prints to the standard output or the standard error. Names that other
// programs chose can be hostile. Therefore printer is not an io.Writer: each of
// its methods escapes control characters, and line breaks inside names.
type printer struct{ to io.Writer }

// line prints exactly one line: it escapes line breaks in its arguments.
func (p printer) line(format string, args ...any) error {
	_, err := fmt.Fprintln(p.to, escape.Line(fmt.Sprintf(format, args...)))
	return err
}

// note prints one line beside the command's result. It ignores write errors.
func (p printer) note(format string, args ...any) { _ = p.line(format, args...) }

// lines prints one line per text.
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

// cells returns the row with each cell escaped.
func cells(row []string) []string {
	all := make([]string, len(row))
	for i, cell := range row {
		all[i] = escape.Line(cell)
	}
	return all
}

// json prints a value as indented JSON. The JSON encodes control characters, so
// a parser reads the original text.
func (p printer) json(v any) error {
	enc := json.NewEncoder(escape.JSON(p.to))
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// jsonLine prints a value as JSON on one line.
func (p printer) jsonLine(v any) error { return json.NewEncoder(escape.JSON(p.to)).Encode(v) }

// document returns a writer for text of several lines. The caller must make sure
// that no name in the text contains a line break.
func (p printer) document() io.Writer { return escape.Writer(p.to) }

// jsonDocument returns a writer for JSON.
func (p printer) jsonDocument() io.Writer { return escape.JSON(p.to) }

// styled returns a writer like document that lets the laboratory's colours pass.
func (p printer) styled() io.Writer { return escape.Styled(p.to, report.Styles...) }

// error prints an error. It indents all lines after the first.
func (p printer) error(err error) {
	text := escape.Text(strings.ReplaceAll(escape.Error(err), "\n", "\n  "))
	fmt.Fprintln(p.to, "fairlead:", text)
}

// width returns the terminal's width in columns, and whether p is a terminal.
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

// colored reports whether to print colours: p is a terminal, NO_COLOR is not set
// (no-color.org), and TERM is not dumb.
func (p printer) colored() bool {
	_, terminal := p.width()
	return terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
