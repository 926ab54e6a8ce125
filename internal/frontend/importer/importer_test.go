package importer_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"fairlead/internal/daemon"
	"fairlead/internal/frontend/file"
	"fairlead/internal/frontend/importer"

	"github.com/google/go-cmp/cmp"
)

// text writes what was imported as users see it.
func text(t testing.TB, i importer.Imported) string {
	t.Helper()
	var out bytes.Buffer
	if err := file.Write(&out, daemon.Spec{Services: i.Services}); err != nil {
		t.Fatal(err)
	}
	for _, l := range i.Left {
		fmt.Fprintf(&out, "%d: %s\n", l.Line, l.Text)
	}
	return out.String()
}

// TestImport reads configurations with all that there is, and says what is not
// carried over.
func TestImport(t *testing.T) {
	for _, c := range []struct {
		from, to string
		read     func([]byte) importer.Imported
	}{{"testdata/rules.txt", "testdata/rules.yaml", importer.IPVSAdm}, {"testdata/keepalived.conf", "testdata/keepalived.yaml", importer.Keepalived}} {
		from, err := os.ReadFile(c.from)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(c.to)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), text(t, c.read(from))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.from, diff)
		}
	}
}

// TestBraces says where a keepalived.conf is not what it looks like.
func TestBraces(t *testing.T) {
	for in, want := range map[string]string{
		"virtual_server 192.0.2.1 80 {\n}\n":                                         "[]",
		"virtual_server 192.0.2.1 80 {\n}\n}\n}\nvirtual_server 192.0.2.2 80 {\n}\n": "[{3 }: no brace is open here: what is above may not be read as it was meant}]",
		"virtual_server 192.0.2.1 80 {\n lb_algo rr\n include a.conf\n":              "[{1 virtual_server: its brace is not closed: what follows is read as part of it} {3 include a.conf: the file is not read: write what it says in its place}]",
		"\x1b[2Jx\n": "[{1 \uFFFD[2Jx: it is no virtual_server block}]",
	} {
		if got := fmt.Sprint(importer.Keepalived([]byte(in)).Left); got != want {
			t.Errorf("%q: %s\nwant %s", in, got, want)
		}
	}
}

// FuzzIPVSAdm and FuzzKeepalived read anything without harm; what they make is
// valid.
func FuzzIPVSAdm(f *testing.F) { fuzz(f, "testdata/rules.txt", importer.IPVSAdm) }

func FuzzKeepalived(f *testing.F) { fuzz(f, "testdata/keepalived.conf", importer.Keepalived) }

func fuzz(f *testing.F, seed string, read func([]byte) importer.Imported) {
	from, err := os.ReadFile(seed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(from)
	f.Add([]byte("{ } } {{{ \" ' virtual_server ! x\n virtual_server 1.2.3.4 5 { real_server { } } \"\" {"))
	f.Add([]byte("-A -t -s\n-a -p -t 1.2.3.4:5 -r"))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, v := range read(in).Services {
			if err := v.Validate(); err != nil {
				t.Errorf("%+v: %v", v, err)
			}
		}
	})
}
