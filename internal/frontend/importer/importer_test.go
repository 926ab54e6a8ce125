package importer_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/frontend/file"
	"fairlead/internal/frontend/importer"
	"fairlead/internal/model"

	"github.com/google/go-cmp/cmp"
)

// text writes the result of an import as users see it.
func text(t testing.TB, i importer.Imported) string {
	t.Helper()
	var out bytes.Buffer
	if err := file.Write(&out, api.Spec{Services: i.Services, Addresses: i.Addresses}); err != nil {
		t.Fatal(err)
	}
	for _, l := range i.Reports {
		fmt.Fprintf(&out, "%d: %s\n", l.Line, l.Text)
	}
	return out.String()
}

// TestImport imports configurations with all supported and unsupported features.
func TestImport(t *testing.T) {
	for _, c := range []struct {
		from, to string
		read     func([]byte) importer.Imported
	}{{"testdata/rules.txt", "testdata/rules.yaml", importer.IPVSAdm},
		{"testdata/keepalived.conf", "testdata/keepalived.yaml", importer.Keepalived}} {
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

// TestBraces checks the reports about braces that do not match.
func TestBraces(t *testing.T) {
	for in, want := range map[string]string{
		"virtual_server 192.0.2.1 80 {\n}\n":                                         "[]",
		"virtual_server 192.0.2.1 80 {\n}\n}\n}\nvirtual_server 192.0.2.2 80 {\n}\n": "[{3 }: no brace is open: the lines above may be read differently than intended}]",
		"virtual_server 192.0.2.1 80 {\n lb_algo rr\n include a.conf\n":              "[{1 virtual_server: its brace is not closed: the following lines are read as part of it} {3 include a.conf: the file is not read: copy its content to this place}]",
		"\x1b[2Jx\n": "[{1 \uFFFD[2Jx: not imported: it is neither a virtual_server nor a vrrp_instance block}]",
	} {
		if got := fmt.Sprint(importer.Keepalived([]byte(in)).Reports); got != want {
			t.Errorf("%q: %s\nwant %s", in, got, want)
		}
	}
}

// TestQuorum checks the conversion of keepalived's quorum, a sum of weights, to
// Fairlead's, a number of servers.
func TestQuorum(t *testing.T) {
	for _, c := range []struct {
		quorum  string
		weights []string
		want    int
		says    string
	}{
		{"quorum 100", []string{"100", "100", "100"}, 1, ""},
		{"quorum 200", []string{"100", "100", "100"}, 2, ""},
		{"quorum 150", []string{"100", "100", "100"}, 2, ""},
		{"quorum 1000", []string{"100", "100"}, 2, ""}, // keepalived lowers it to 200
		{"quorum 3", []string{"3", "1", "1"}, 3, "quorum 3: keepalived adds the weights"},
		{"quorum 1", []string{"1", "1", "0"}, 2, "quorum 1: keepalived adds the weights"},
		{"quorum 2", []string{"1", "1"}, 2, ""},
	} {
		var conf strings.Builder
		fmt.Fprintf(&conf, "virtual_server 192.0.2.1 80 {\n%s\n", c.quorum)
		for i, w := range c.weights {
			fmt.Fprintf(&conf, "real_server 10.0.0.%d 80 {\nweight %s\nTCP_CHECK {\n}\n}\n", i+1, w)
		}
		got := importer.Keepalived([]byte(conf.String() + "}\n"))
		if len(got.Services) != 1 || got.Services[0].Quorum != c.want {
			t.Errorf("%s of weights %v: %+v, want %d servers", c.quorum, c.weights, got.Services, c.want)
		}
		if said := fmt.Sprint(got.Reports); (c.says == "") != (said == "[]") || !strings.Contains(said, c.says) {
			t.Errorf("%s of weights %v: %s, want %q", c.quorum, c.weights, said, c.says)
		}
	}
}

// TestEmptyCheckBlock checks that a block without options is a check with keepalived's
// defaults.
func TestEmptyCheckBlock(t *testing.T) {
	got := importer.Keepalived([]byte("virtual_server 192.0.2.1 80 {\nreal_server 10.0.0.1 80 {\nTCP_CHECK { }\n}\nreal_server 10.0.0.2 80 {\nTCP_CHECK {\n}\n}\n}\n"))
	if len(got.Services) != 1 || got.Services[0].Check.Type != model.CheckTCP || got.Services[0].Check.Fall != 2 ||
		len(got.Reports) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestReportsOfWhatIsNotImported checks the texts about settings that a service cannot
// represent.
func TestReportsOfWhatIsNotImported(t *testing.T) {
	for in, want := range map[string]string{
		"-A -t 192.0.2.1:80 -s rr\n-a -t 192.0.2.1:80 -r 10.0.0.1:80 -m --frob 3 -q\n": "{2 --frob 3 -q: not imported}",
		"-A -t 192.0.2.1:80 -s rr -o\n-a -t 192.0.2.1:80 -r 10.0.0.1:80 -m\n":          "{1 -o: not imported: Fairlead does not support one-packet scheduling}",
		"-A -t 192.0.2.1:80 -s rr --ops\n-a -t 192.0.2.1:80 -r 10.0.0.1:80 -m\n":       "{1 -o: not imported: Fairlead does not support one-packet scheduling}",
		"-A -t 192.0.2.1:80 -s rr -w 3\n-a -t 192.0.2.1:80 -r 10.0.0.1:80 -m -s wlc\n": "{1 -w 3: not imported} {2 -s wlc: not imported}",
		"-A -t 192.0.2.1:80 -s rr -p x\n-a -t 192.0.2.1:80 -r 10.0.0.1:80 -m\n":        "{1 -p x: want seconds: 5m0s is used}",
		"-A -t 192.0.2.1:80 -s rr\n-a -t 192.0.2.1:80 -r host.example:80 -m\n":         "{1 tcp-192-0-2-1-80 is not imported: none of its real servers could be imported} {2 real server host.example:80: want an address and a port: use the output of `ipvsadm -S -n`}",
	} {
		if got := strings.Trim(fmt.Sprint(importer.IPVSAdm([]byte(in)).Reports), "[]"); got != want {
			t.Errorf("%q\ngives %s\nwant  %s", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"real_server 10.0.0.1 80 {\nconnect_timeout 3\n}":                                    "{3 connect_timeout 3: not imported: no check uses it}",
		"delay_loop 3\nreal_server 10.0.0.1 80 {\n}":                                         "{2 delay_loop 3: not imported: no check uses it}",
		"lb_algo rr fast\nreal_server 10.0.0.1 80 {\n}":                                      `{2 lb_algo: "fast" is not imported}`,
		"real_server 10.0.0.1 80 {\nHTTP_GET {\nurl {\npath /\nstatus_code 200 204\n}\n}\n}": "",
		"mh-port\nreal_server 10.0.0.1 80 {\n}":                                              "{2 mh-port: not imported}",
		"real_server nowhere 80 {\n}":                                                        "{1 tcp-192-0-2-1-80 is not imported: none of its real servers could be imported} {2 real_server nowhere 80 is not imported: want an address and a port}",
		"real_server 10.0.0.1 80 {\nTCP_CHECK {\nconnect_timeout soon\n}\n}":                 "{4 connect_timeout soon: want seconds}",
	} {
		if got := strings.Trim(fmt.Sprint(importer.Keepalived([]byte("virtual_server 192.0.2.1 80 {\n"+in+
			"\n}\n")).Reports), "[]"); got != want {
			t.Errorf("%q\ngives %s\nwant  %s", in, got, want)
		}
	}
}

// TestCommandsAsTyped imports commands of ipvsadm as people type them: with the
// command's name, without a port of the real server, without a scheduler.
func TestCommandsAsTyped(t *testing.T) {
	got := importer.IPVSAdm([]byte("ipvsadm -A -t 192.0.2.1:443\nsudo /sbin/ipvsadm -a -t 192.0.2.1:443 -g -r 10.0.0.1 -w3\nipvsadm -a -t 192.0.2.1:443 -g -r 10.0.0.2\n"))
	if len(got.Services) != 1 || len(got.Reports) > 0 {
		t.Fatalf("%+v", got)
	}
	v := got.Services[0]
	if v.Scheduler != model.WeightedLeastConnection || v.Forward != model.ForwardDirect || len(v.Reals) != 2 ||
		v.Reals[0].Weight != 3 || v.Reals[1].At(443).Port() != 443 {
		t.Errorf("%+v", v)
	}
}

// FuzzIPVSAdm and FuzzKeepalived check that no input crashes the importer, and that all
// imported services are valid.
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

// TestCombinedOptions: several short options in one word mean the same as single ones.
func TestCombinedOptions(t *testing.T) {
	want := text(t, importer.IPVSAdm([]byte("-A -t 192.0.2.1:80 -s wrr -p 60\n-a -t 192.0.2.1:80 -r 10.0.0.2:80 -m -w 3\n")))
	for _, lines := range []string{
		"-At 192.0.2.1:80 -s wrr -p 60\n-at 192.0.2.1:80 -r 10.0.0.2:80 -mw 3\n",
		"ipvsadm -At192.0.2.1:80 -swrr -p60\nipvsadm -amt 192.0.2.1:80 -r10.0.0.2:80 -w3\n",
	} {
		if diff := cmp.Diff(want, text(t, importer.IPVSAdm([]byte(lines)))); diff != "" {
			t.Errorf("%s(-want +got):\n%s", lines, diff)
		}
	}
	if got := text(t, importer.IPVSAdm([]byte("-AZt 192.0.2.1:80\n"))); !strings.Contains(got, "-AZt 192.0.2.1:80") {
		t.Errorf("an unknown option in a word: %s", got)
	}
}
