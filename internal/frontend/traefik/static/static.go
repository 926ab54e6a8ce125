// Package static reads the settings with which Traefik starts (its command line, environment
// or static file) into gateway.Static. It reads no more than one file, and neither labels nor
// dynamic files.
package static

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"fairlead/internal/frontend/traefik/tree"
	"fairlead/internal/model/gateway"
)

// Note is a setting that has no effect here, or another one than in Traefik.
type Note struct {
	// Key is the setting as the user wrote it.
	Key, Text string
}

func (n Note) String() string { return n.Key + ": " + n.Text }

// Read returns what Traefik's command line (without the program's name), environment
// (NAME=VALUE) or static file configures. As in Traefik, a file excludes the command line,
// which excludes the environment: what is excluded is in the notes. Returns an error that
// has a line for each setting that is unknown or faulty.
func Read(args, env []string) (gateway.Static, []Note, error) {
	return read(args, env, defaultFiles(env))
}

// read is Read with the files that apply if they exist and no other is named.
func read(args, env, files []string) (gateway.Static, []Note, error) {
	var zero gateway.Static
	src, err := choose(args, env, files)
	if err != nil {
		return zero, nil, err
	}
	b := &builder{notes: removeIgnored(src.root, "", nil)}
	var all allSettings
	b.mistakes = append(src.mistakes, tree.Decode(src.root, "", &all)...)
	s := b.build(&all)
	notes := src.notes
	for _, n := range b.notes {
		notes = append(notes, Note{src.name(n.Key), n.Text})
	}
	var faults []string
	for _, m := range b.mistakes {
		if m.Key = src.name(m.Key); m.Warning {
			notes = append(notes, Note{m.Key, m.Text})
			continue
		}
		faults = append(faults, m.Error())
	}
	if len(faults) > 0 {
		return zero, notes, fmt.Errorf("read %s: %s", src.what, strings.Join(faults, "; "))
	}
	return s, notes, nil
}

// builder turns settings into the values of the model.
type builder struct {
	mistakes []tree.Mistake
	notes    []Note
}

func (b *builder) mistake(key, format string, args ...any) {
	b.mistakes = append(b.mistakes, tree.Mistake{Key: key, Text: fmt.Sprintf(format, args...)})
}

func (b *builder) note(key, format string, args ...any) {
	b.notes = append(b.notes, Note{key, fmt.Sprintf(format, args...)})
}

// build returns the values with Traefik's defaults.
func (b *builder) build(s *allSettings) gateway.Static {
	out := gateway.Static{
		Transport:    value(s.ServersTransport),
		TCPTransport: value(s.TCPServersTransport),
		RuleSyntax:   value(s.Core).DefaultRuleSyntax,
		Ping:         s.Ping,
		Metrics:      value(s.Metrics).Prometheus,
	}
	if out.RuleSyntax != "" && !slices.Contains(ruleSyntaxes, out.RuleSyntax) {
		b.mistake("core.defaultRuleSyntax", "value %q: want v2 or v3", out.RuleSyntax)
	}
	if s.API != nil {
		out.API = &gateway.API{Insecure: s.API.Insecure, Dashboard: s.API.Dashboard == nil || *s.API.Dashboard,
			BasePath: b.basePath(s.API.BasePath)}
	}
	if out.Ping != nil {
		out.Ping.EntryPoint = cmp.Or(out.Ping.EntryPoint, internalEntryPoint)
		out.Ping.TerminatingStatusCode = cmp.Or(out.Ping.TerminatingStatusCode, 503)
	}
	if out.Metrics != nil {
		out.Metrics.EntryPoint = cmp.Or(out.Metrics.EntryPoint, internalEntryPoint)
		if out.Metrics.Buckets == nil {
			out.Metrics.Buckets = []float64{0.1, 0.3, 1.2, 5}
		}
	}
	b.logs(s, &out)
	out.Providers = b.providers(value(s.Providers))
	b.entryPoints(s, &out)
	out.Resolvers = b.resolvers(s.CertificatesResolvers, out.EntryPoints)
	return out
}

// basePath returns the path of the API without a slash at its end.
func (b *builder) basePath(text string) string {
	if !gateway.IsBasePath(text) {
		b.mistake("api.basePath", "value %q: want a path such as /traefik, of letters, digits and - . _ ~", text)
	}
	return path.Clean("/" + text)
}

// The values of settings that have one of some words.
var (
	ruleSyntaxes = []string{"v2", "v3"}
	logFormats   = []string{"common", "json", "genericCLF"}
	fieldModes   = []string{"keep", "drop"}
	headerModes  = []string{"keep", "drop", "redact"}
)

// Words returns the values of the settings that have one of some words, by the Go type that has
// the setting and the setting's key.
func Words() map[string][]string {
	return map[string][]string{"coreSettings.defaultRuleSyntax": ruleSyntaxes, "accessLogSettings.format": logFormats,
		"LogFields.defaultMode": fieldModes, "LogHeaders.defaultMode": headerModes, "LogQuery.defaultMode": fieldModes,
		"Docker.labelScope": gateway.LabelScopes()}
}

// logs sets the access log, and the log of the gateway itself.
func (b *builder) logs(s *allSettings, out *gateway.Static) {
	if a := s.AccessLog; a != nil {
		f := value(a.Filters)
		out.AccessLog = &gateway.AccessLog{FilePath: a.FilePath, Format: cmp.Or(a.Format, "common"),
			BufferingSize: a.BufferingSize, StatusCodes: f.StatusCodes, RetryAttempts: f.RetryAttempts,
			MinDuration: f.MinDuration, AddInternals: a.AddInternals, Fields: a.Fields}
		if !slices.Contains(logFormats, out.AccessLog.Format) {
			b.note("accessLog.format", "has no effect: the value %q is none of common, genericCLF and json", a.Format)
			out.AccessLog.Format = "common"
		}
		b.logFields(a.Fields)
	}
	l := value(s.Log)
	out.LogFormat, out.LogFile = l.Format, l.FilePath
	levels := map[string]string{"": "", "trace": "debug", "debug": "debug", "info": "info", "warn": "warn",
		"warning": "warn", "error": "error", "fatal": "error", "panic": "error"}
	var ok bool
	if out.LogLevel, ok = levels[strings.ToLower(l.Level)]; !ok {
		b.note("log.level", "has no effect: the value %q is none of DEBUG, INFO, WARN and ERROR", l.Level)
	}
}

// logFields notes modes that have no effect.
func (b *builder) logFields(f *gateway.LogFields) {
	if f == nil {
		return
	}
	check := func(key, mode string, modes ...string) {
		if mode != "" && !slices.Contains(modes, mode) {
			b.note("accessLog.fields."+key, "has no effect: the value %q is none of %s", mode, strings.Join(modes, ", "))
		}
	}
	names := func(key string, all map[string]string, modes ...string) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			check(tree.Join(key, name), all[name], modes...)
		}
	}
	check("defaultMode", f.DefaultMode, fieldModes...)
	names("names", f.Names, fieldModes...)
	if h := f.Headers; h != nil {
		check("headers.defaultMode", h.DefaultMode, headerModes...)
		names("headers.names", h.Names, headerModes...)
	}
	if q := f.QueryParameters; q != nil {
		check("queryParameters.defaultMode", q.DefaultMode, fieldModes...)
	}
}

// providers returns the settings of the providers that are on.
func (b *builder) providers(p gateway.Providers) gateway.Providers {
	for _, r := range p.Complete() {
		if r.Mistake {
			b.mistake("providers."+r.Key, "%s", r.Text)
		} else {
			b.note("providers."+r.Key, "%s", r.Text)
		}
	}
	return p
}

// resolvers returns the resolvers with an ACME part by name.
func (b *builder) resolvers(
	all map[string]*resolverSettings, eps []gateway.EntryPoint,
) map[string]*gateway.Resolver {
	out := map[string]*gateway.Resolver{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] == nil || all[name].ACME == nil {
			continue
		}
		a, key := all[name].ACME, tree.Join("certificatesResolvers", name)+".acme"
		out[name] = &gateway.Resolver{Email: a.Email, CAServer: a.CAServer, Storage: cmp.Or(a.Storage, "acme.json"),
			KeyType: a.KeyType, TLSChallenge: a.TLSChallenge != nil, DNSChallenge: dnsChallenge(a.DNSChallenge),
			CACertificates: a.CACertificates, CAServerName: a.CAServerName, CASystemCertPool: a.CASystemCertPool,
			EAB: a.EAB, PreferredChain: a.PreferredChain, Profile: a.Profile}
		if a.HTTPChallenge != nil {
			out[name].HTTPChallenge = b.httpChallenge(key+".httpChallenge", a.HTTPChallenge.EntryPoint, eps)
		}
		switch {
		case a.DNSChallenge != nil && a.DNSChallenge.Provider == "":
			b.note(key+".dnsChallenge", "has no effect: set provider to the name of the zone's operator")
			out[name].DNSChallenge = nil
		case a.DNSChallenge == nil && a.HTTPChallenge == nil && a.TLSChallenge == nil:
			b.note(key, "obtains no certificate: set httpChallenge, tlsChallenge or dnsChallenge")
		}
	}
	return out
}

// httpChallenge returns the entry point that answers the challenge: without a name, the
// one at port 80.
func (b *builder) httpChallenge(key, name string, entryPoints []gateway.EntryPoint) string {
	var names []string
	for _, ep := range entryPoints {
		_, port, udp, _ := splitAddress(ep.Address)
		if name == "" && port == "80" && !udp {
			return ep.Name
		}
		names = append(names, ep.Name)
	}
	if slices.Contains(names, name) {
		return name
	}
	b.note(key+".entryPoint", "has no effect: the value %q is no entry point: set it to one of %s", name,
		strings.Join(names, ", "))
	return ""
}

func dnsChallenge(d *dnsChallengeSettings) *gateway.DNSChallenge {
	if d == nil {
		return nil
	}
	p := value(d.Propagation)
	return &gateway.DNSChallenge{Provider: d.Provider, Resolvers: d.Resolvers,
		DelayBeforeCheck: cmp.Or(d.DelayBeforeCheck, p.DelayBeforeChecks),
		DisableChecks:    d.DisablePropagationCheck || p.DisableChecks}
}

// value returns what p points to, or the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// or returns what p points to, or the default.
func or[T any](p *T, byDefault T) T {
	if p != nil {
		return *p
	}
	return byDefault
}
