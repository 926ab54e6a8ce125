package rule

import (
	"slices"
	"testing"
)

// FuzzParse checks that no text makes Parse panic, and that a rule in canonical form is
// the same rule.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"Host(`a.example.com`) && PathPrefix(`/api`)",
		"Host(`a`, `b`) || !(Path(`/{id:[0-9]{2}}`) && Method(`GET`,))",
		"HeaderRegexp(\"X-A\", \"^\\x60\\u00e9$\") && Query(`a`)",
		"Headers(`A`, `b`) && Query(`a=b`, `c={d}`) && HostRegexp(`{s:.+}.a`)",
		"!!(ClientIP(`10.0.0.0/8`) || CLIENTIP(`::1`)) and Host('a')",
		"HostSNI(`*`) && ALPN(`h2`)",
	} {
		f.Add(text, "", false)
		f.Add(text, "v2", true)
	}
	f.Fuzz(func(t *testing.T, text, syntax string, tcp bool) {
		r, err := compiled(parseAs(text, syntax, tcp))
		if err != nil {
			return
		}
		canonical := r.String()
		again, err := compiled(parseAs(canonical, r.syntax, tcp))
		if err != nil {
			t.Fatalf("%s: canonical form %s: %v", text, canonical, err)
		}
		if !sameTree(r.root, again.root) || again.String() != canonical {
			t.Fatalf("%s: canonical form %s parses to %s", text, canonical, again)
		}
		q := request("a.example.com", "/api/7", "a=b")
		if r.Match(q) != again.Match(q) || r.Match(q) != (len(r.Explain(q)) == 0) {
			t.Fatalf("%s: its canonical form or Explain differs from Match", text)
		}
		if hosts, ok := r.Hosts(); ok && r.Match(q) && !slices.Contains(hosts, q.Host) {
			t.Fatalf("%s: matches host %s, but Hosts returns %v", text, q.Host, hosts)
		}
	})
}

func sameTree(a, b *node) bool {
	if a.op == leaf && b.op == leaf {
		return a.leaf.kind == b.leaf.kind && slices.Equal(a.leaf.args, b.leaf.args)
	}
	return a.op == b.op && slices.EqualFunc(a.kids, b.kids, sameTree)
}

// FuzzCleanPath checks that a clean path stays as it is, and has no dot segments.
func FuzzCleanPath(f *testing.F) {
	for _, s := range []string{"/a/../b//", "/%2e%2e/%2f", "/a%zz", "*", "x#y", "/é %c3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, escaped string) {
		clean, err := CleanPath(escaped)
		if err != nil {
			return
		}
		if again, err := CleanPath(clean); err != nil || again != clean {
			t.Fatalf("CleanPath(%q) = %q, whose clean form is %q, %v", escaped, clean, again, err)
		}
	})
}
