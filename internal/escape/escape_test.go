package escape_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"fairlead/internal/escape"
)

// texts are untrusted names and their escaped forms.
var texts = []struct{ name, line string }{
	{"", ""}, {"web", "web"}, {"größe → 3 µs", "größe → 3 µs"}, {`C:\n`, `C:\n`},
	{"a\x1b[31mb", `a\x1b[31mb`}, {"a\nb\r\tc", `a\nb\r\tc`}, {"\x00\x7f", `\x00\x7f`},
	{"\u0085\u009b", `\u0085\u009b`},
	{"a\u202eb\u2066", `a\u202eb\u2066`}, {"a\u200bb\ufeff", `a\u200bb\ufeff`}, {"\u2028", `\u2028`},
	{"\U000e0041", `\U000e0041`},
	{"a\u3164b\u115f\ufe0f", `a\u3164b\u115f\ufe0f`}, {"a\xffb\xc3", `a\xffb\xc3`}, {"\ufffd", "\ufffd"},
	{"a\u2002b", `a\u2002b`}, {"1\u00a0µs", "1\u00a0µs"},
}

func TestLine(t *testing.T) {
	for _, c := range texts {
		if got := escape.Line(c.name); got != c.line {
			t.Errorf("%q is shown as %q, want %q", c.name, got, c.line)
		}
	}
	if got := escape.Text("a\n\tb\x1b\n"); got != "a\n\tb\\x1b\n" {
		t.Errorf("got %q", got)
	}
}

// TestWriterTakesAnyPieces writes texts one byte at a time: a buffer may split a
// character.
func TestWriterTakesAnyPieces(t *testing.T) {
	for _, c := range texts {
		var b bytes.Buffer
		w := escape.Writer(&b)
		for i := range len(c.name) {
			if _, err := w.Write([]byte{c.name[i]}); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprint(w, ".") // ends an incomplete character
		if got, want := b.String(), escape.Text(c.name+"."); got != want {
			t.Errorf("%q is written as %q, want %q", c.name, got, want)
		}
	}
}

func TestJSONIsExact(t *testing.T) {
	for _, c := range texts {
		var b bytes.Buffer
		if err := json.NewEncoder(escape.JSON(&b)).Encode(c.name); err != nil {
			t.Fatal(err)
		}
		var back string
		if err := json.Unmarshal(b.Bytes(), &back); err != nil || utf8.ValidString(c.name) && back != c.name {
			t.Errorf("%q is read as %q, %v", c.name, back, err)
		}
		if shown := strings.TrimSuffix(b.String(), "\n"); escape.Line(shown) != shown {
			t.Errorf("%q is raw in %q", c.name, shown)
		}
	}
}

func TestStyled(t *testing.T) {
	var b bytes.Buffer
	fmt.Fprint(escape.Styled(&b, "0", "31"), "\x1b[31ma\x1b[8mb\x1b[0m\x1b]0;x\x07")
	if want := "\x1b[31ma\\x1b[8mb\x1b[0m\\x1b]0;x\\x07"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// TestErrorLines checks that only the parts of a joined error begin a new line.
func TestErrorLines(t *testing.T) {
	name := errors.New("name a\nFORGED\x1b")
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{name, `name a\nFORGED\x1b`},
		{fmt.Errorf("link x\ny: %w", name), `link x\ny: name a\nFORGED\x1b`},
		{errors.Join(name, errors.New("b")), "name a\\nFORGED\\x1b\nb"},
		{fmt.Errorf("do\n: %w", errors.Join(errors.New("a"), fmt.Errorf("b\n: %w", name))),
			"do\\n: a\nb\\n: name a\\nFORGED\\x1b"},
		{fmt.Errorf("%w\n%w: c", name, errors.New("b")), `name a\nFORGED\x1b\nb: c`},
		{errors.Join(errors.New("a"), errors.New("a")), "a\na"},
	} {
		if got := escape.Error(c.err); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestAll(t *testing.T) {
	type inner struct{ Name string }
	v := struct {
		A    string
		B    []inner
		C    map[string][]string
		D    *inner
		E    [1]string
		note string
	}{"a\n", []inner{{"b\n"}}, map[string][]string{"k\n": {"c\n"}}, &inner{"d\n"}, [1]string{"e\n"}, "f\n"}
	escape.All(&v)
	if got, want := fmt.Sprintln(v.A, v.B, v.C, *v.D, v.E, v.note), `a\n [{b\n}] map[k\n:[c\n]] {d\n} [e\n] f`+
		"\n\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzShell checks that a shell reads the result as one word that equals the text.
func FuzzShell(f *testing.F) {
	for _, c := range texts {
		f.Add(c.name)
	}
	for _, s := range []string{"$(id)", "`id`", "a'b", "a;reboot", "~root", "=ls", "-n", "*", "a\\", "a\nb'", "!!",
		"{a,b}", "#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "\x00") {
			return // an argument cannot contain NUL
		}
		word := escape.Shell(s)
		if escape.Line(word) != word && utf8.ValidString(s) {
			t.Errorf("%q is raw in %q", s, word)
		}
		out, err := exec.Command("bash", "-c", "printf %s/ "+word).Output()
		if err != nil || string(out) != s+"/" {
			t.Errorf("bash reads %q, written as %s, as %q, %v", s, word, out, err)
		}
		out, err = exec.Command("sh", "-c", `f() { printf %s $#; }; f `+word).Output()
		if err != nil || string(out) != "1" {
			t.Errorf("sh takes %s for %q words, %v", word, out, err)
		}
	})
}
