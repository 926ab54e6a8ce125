package hosttls

import (
	"crypto/tls"
	"slices"
	"testing"

	"fairlead/internal/gateway/rule"
	"fairlead/internal/model/gateway"

	"github.com/google/go-cmp/cmp"
)

func useOf(t *testing.T, options, text string) []Use {
	t.Helper()
	r, err := rule.Parse(text, "v3")
	if err != nil {
		t.Fatal(err)
	}
	return []Use{NewUse("web", options, r)}
}

// TestDecide decides about routers whose options are equal, weaker, stricter and unusable.
func TestDecide(t *testing.T) {
	options := Options{Configs: map[string]*tls.Config{}, SNIStrict: map[string]bool{}}
	options.Set(Default, &tls.Config{MinVersion: tls.VersionTLS12}, false)
	options.Set("new@file", &tls.Config{MinVersion: tls.VersionTLS13}, false)
	options.Set("broken@file", nil, false)
	entries := []gateway.EntryPoint{{Name: "web"}, {Name: "new", TLS: &gateway.RouterTLS{Options: "new@file"}}}
	hosts, verdicts := Decide(options, entries, map[string][]Use{
		"strict@file":   useOf(t, "new@file", "Host(`*.a.test`)"),
		"weak@docker":   useOf(t, Default, "Host(`*.a.test`)"),
		"site@file":     useOf(t, Default, "Host(`b.test`)"),
		"new@docker":    useOf(t, "new@file", "Host(`b.test`)"),
		"open@docker":   useOf(t, "new@file", "PathPrefix(`/x`)"),
		"broken@docker": useOf(t, "broken@file", "Host(`c.test`)"),
	}, func(name string) string { return name + " is broken" })
	closed, notes := []string{}, []string{}
	for name, v := range verdicts {
		if len(v.Closed) > 0 {
			closed = append(closed, name)
		}
		if len(v.Notes) > 0 {
			notes = append(notes, name)
		}
	}
	slices.Sort(closed)
	if diff := cmp.Diff([]string{"broken@docker", "new@docker", "open@docker"}, closed); diff != "" {
		t.Errorf("disabled routers: -want +got\n%s", diff)
	}
	if diff := cmp.Diff([]string{"weak@docker"}, notes); diff != "" {
		t.Errorf("routers with notes: -want +got\n%s", diff)
	}
	if diff := cmp.Diff([]string{"broken@file is broken"}, verdicts["broken@docker"].Closed); diff != "" {
		t.Errorf("unusable options: -want +got\n%s", diff)
	}
	for at, want := range map[[2]string]string{
		{"web", "x.a.test"}: "new@file", {"web", "X.A.TEST."}: "new@file", {"web", "a.test"}: Default,
		{"web", "b.test"}: Default, {"web", "192.0.2.1"}: Default, {"new", "b.test"}: "new@file",
	} {
		if got := hosts.Of(at[0], at[1]); got != want {
			t.Errorf("%s at %s has the options %s, want %s", at[1], at[0], got, want)
		}
	}
	if hosts.Agree("web", "b.test", "x.a.test") || !hosts.Agree("web", "y.a.test", "x.a.test") {
		t.Error("a request may come on a connection with other options, or not on one with the same")
	}
}

// TestAdmits admits requests to routers on connections with other options.
func TestAdmits(t *testing.T) {
	configs := map[string]*tls.Config{Default: {MinVersion: tls.VersionTLS13},
		"old@file": {MinVersion: tls.VersionTLS12}}
	for name, c := range map[string]struct {
		options              string
		hostless, ownDefault bool
		want                 bool
	}{
		"no TLS":                                {"", false, true, true},
		"weaker options":                        {"old@file", false, true, true},
		"options that do not exist":             {"gone@file", false, true, false},
		"no host, the library's default":        {Default, true, false, true},
		"no host, configured default":           {Default, true, true, true},
		"no host, other options than the entry": {"gone@file", true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			options := Options{Configs: configs, SNIStrict: map[string]bool{}, OwnDefault: c.ownDefault}
			hosts, _ := Decide(options, nil, nil, nil)
			if got := hosts.Admits("web", "a.test", c.options, c.hostless); got != c.want {
				t.Errorf("admitted: %v, want %v", got, c.want)
			}
		})
	}
	weak := Options{Configs: configs, SNIStrict: map[string]bool{}}
	entries := []gateway.EntryPoint{{Name: "web", TLS: &gateway.RouterTLS{Options: "old@file"}}}
	for _, own := range []bool{false, true} {
		weak.OwnDefault = own
		hosts, _ := Decide(weak, entries, nil, nil)
		if got := hosts.Admits("web", "a.test", Default, true); got == own {
			t.Errorf("default configured %v: a router without host and options is admitted on a weaker connection: %v",
				own, got)
		}
	}
}
