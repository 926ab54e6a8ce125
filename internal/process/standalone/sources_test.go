package standalone

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
)

// TestStoresOfProviders checks that labels do not replace the TLS store of a file, whose name has no
// provider, and that the conflict is reported.
func TestStoresOfProviders(t *testing.T) {
	of := func(resolver string) Source {
		return Source{Config: model.Config{TLS: model.TLS{Stores: map[string]*model.Store{"default": {
			DefaultGeneratedCert: &model.GeneratedCert{Resolver: resolver}}}}}}
	}
	for _, provider := range []string{"docker", "swarm", "cluster"} {
		all, known := Together(map[string]Source{"file": of("mine"), provider: of("theirs")})
		if got := all.TLS.Stores["default"].DefaultGeneratedCert.Resolver; got != "mine" {
			t.Errorf("the store of the provider %s replaces that of the file: %s", provider, got)
		}
		want := "provider " + provider + ": it is already defined with other settings by the provider file, whose " +
			"definition stays: define it in one of them"
		if len(known) != 1 || known[0].Kind != "tls store" || known[0].Name != "default" ||
			known[0].Reasons[0] != want {
			t.Errorf("known: %+v, want %q", known, want)
		}
	}
	if _, known := Together(map[string]Source{"docker": of("same"), "swarm": of("same")}); len(known) != 0 {
		t.Errorf("equal stores are a conflict: %+v", known)
	}
}

// TestCheckUDPRouters checks files with UDP routers, with and without names of entry points. Two at one entry point
// are a mistake.
func TestCheckUDPRouters(t *testing.T) {
	for name, c := range map[string]struct{ routers, problem string }{
		"named":     {"{a: {entryPoints: [dns], service: s}, b: {entryPoints: [ntp], service: s}}", ""},
		"not named": {"{a: {service: s}}", ""},
		"twice": {"{a: {entryPoints: [dns], service: s}, b: {entryPoints: [dns], service: s}}",
			"check the files: an object cannot be used"},
	} {
		path := filepath.Join(t.TempDir(), "dynamic.yml")
		text := "udp:\n  routers: " + c.routers +
			"\n  services: {s: {loadBalancer: {servers: [{address: \"192.0.2.7:53\"}]}}}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Check([]string{path}, "", ""); err != nil || got.Problem != c.problem {
			t.Errorf("%s: %v, problem %q, want %q: %+v", name, err, got.Problem, c.problem, got.Objects)
		}
	}
}

// TestReport checks that a problem is logged once, and that of a source not again for each object.
func TestReport(t *testing.T) {
	var log strings.Builder
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	of := func(object, text string) status.Status {
		return statusOf(traefik.Problem{Object: object, Source: "a.yml", Text: text, Warning: true})
	}
	first := []status.Status{of("router a@file", "broken"), of("router b@file", "broken"), of("router b@file", "odd"),
		of("", "broken")}
	reported := Report(logger, "", first, nil)
	reported = Report(logger, "", first, reported)
	Report(logger, "", []status.Status{of("", "worse"), of("router a@file", "worse")}, reported)
	want := `msg="a.yml: odd" router=b@file state=warning
msg=broken source=a.yml state=warning
msg=worse source=a.yml state=warning
`
	if log.String() != want {
		t.Errorf("log:\n%swant\n%s", log.String(), want)
	}
}
