package static

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/frontend/traefik/tree"
	"fairlead/internal/model/gateway"
)

// mustStatic returns what a command line and an environment configure.
func mustStatic(t *testing.T, args, env []string) (gateway.Static, []Note) {
	t.Helper()
	s, notes, err := read(args, env, nil)
	if err != nil {
		t.Fatalf("%q, %q: %v", args, env, err)
	}
	return s, notes
}

func entryPoint(t *testing.T, s gateway.Static, name string) gateway.EntryPoint {
	t.Helper()
	i := slices.IndexFunc(s.EntryPoints, func(e gateway.EntryPoint) bool { return e.Name == name })
	if i < 0 {
		t.Fatalf("there is no entry point %s in %+v", name, s.EntryPoints)
	}
	return s.EntryPoints[i]
}

func hasNote(notes []Note, key, text string) bool {
	return slices.ContainsFunc(notes, func(n Note) bool { return n.Key == key && strings.Contains(n.Text, text) })
}

// TestStaticOfAStack has the flags of a stack as people write them, v2 and v3 mixed.
func TestStaticOfAStack(t *testing.T) {
	s, notes := mustStatic(t, []string{"--api", "--api.dashboard=true", "--api.insecure=true",
		"--entryPoints.web.address=:80", "--entrypoints.websecure.address", ":443", "-entrypoints.dns.address=:53/udp",
		"--entrypoints.web.http.redirections.entryPoint.to=websecure",
		"--entrypoints.websecure.http.tls.certresolver=le",
		"--entrypoints.websecure.http.tls.domains[0].main=example.com",
		"--entrypoints.websecure.http.tls.domains[0].sans=*.example.com,example.org",
		"--entrypoints.websecure.http.middlewares=auth@file", "--entrypoints.websecure.http3",
		"--entrypoints.websecure.forwardedHeaders.trustedIPs=10.0.0.0/8",
		"--entrypoints.websecure.forwardedheaders.trustedips=192.0.2.1, 2001:db8::/32",
		"--entrypoints.websecure.transport.respondingtimeouts.readtimeout=0",
		"--entrypoints.websecure.transport.lifecycle.gracetimeout=1m",
		"--entrypoints.websecure.transport.snistrict",
		"--entrypoints.websecure.http.encodedcharacters.allowencodedslash=false",
		"--providers.docker", "--providers.docker.watch", "--providers.docker.swarmMode",
		"--providers.docker.exposedByDefault", "--providers.docker.network=proxy",
		"--providers.file.directory", "/rules", "--accessLog", "--accesslog.filters.statuscodes=500-599,404",
		"--accesslog.fields.headers.names.User-Agent=keep",
		"--certificatesresolvers.le.acme.email=a@example.com", "--certificatesResolvers.le.acme.storage=/acme.json",
		"--certificatesresolvers.le.acme.httpchallenge.entrypoint=web", "--certificatesresolvers.le.acme.tlschallenge=true",
		"--certificatesresolvers.dns.acme.dnschallenge.provider=rfc2136",
		"--certificatesresolvers.dns.acme.dnschallenge.delaybeforecheck=5",
		"--metrics.prometheus", "--metrics.prometheus.buckets=0.1,1", "--ping=true", "--log.level=WARNING",
		"--serverstransport.insecureskipverify", "--pilot.token", "x", "--global.sendanonymoususage=false",
		"--tracing.jaeger=true", "--core.defaultrulesyntax=v2"}, []string{"TRAEFIK_API=true", "PATH=/bin"})

	secure, web := entryPoint(t, s, "websecure"), entryPoint(t, s, "web")
	yes := true
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"API", s.API, &gateway.API{Dashboard: true, Insecure: true, BasePath: "/"}},
		{"entry points", namesOf(s.EntryPoints), []string{"dns", "traefik", "web", "websecure"}},
		{"default", s.Default, []string{"web", "websecure"}},
		{"internal address", entryPoint(t, s, "traefik").Address, ":8080"},
		{"redirect", web.Redirect, &gateway.Redirection{To: "websecure", Scheme: "https", Permanent: true}},
		{"TLS", secure.TLS, &gateway.RouterTLS{CertResolver: "le",
			Domains: []gateway.Domain{{Main: "example.com", SANs: []string{"*.example.com", "example.org"}}}}},
		{"middlewares", secure.Middlewares, []string{"auth@file"}},
		{"HTTP/3", secure.HTTP3, &gateway.HTTP3{}},
		{"no HTTP/3", web.HTTP3, (*gateway.HTTP3)(nil)},
		{"trusted", secure.TrustedProxies, []string{"10.0.0.0/8", "192.0.2.1", "2001:db8::/32"}},
		{"timeouts", secure.Timeouts, gateway.Timeouts{Read: new(time.Duration), Grace: new(time.Minute)}},
		{"strict", secure.SNIStrict, true},
		{"not strict", web.SNIStrict, false},
		{"default timeouts", web.Timeouts, gateway.Timeouts{}},
		{"encoded slash", secure.EncodedCharacters.AllowEncodedSlash, false},
		{"encoded percent", secure.EncodedCharacters.AllowEncodedPercent, true},
		{"streams", web.MaxConcurrentStreams, 250},
		{"header bytes", web.MaxHeaderBytes, 1 << 20},
		{"UDP timeout", entryPoint(t, s, "dns").UDPTimeout, 3 * time.Second},
		{"Docker", s.Docker, &gateway.Docker{Watch: &yes, SwarmMode: true, ExposedByDefault: &yes, Network: "proxy"}},
		{"file", s.File, &gateway.File{Directory: "/rules"}},
		{"access log", s.AccessLog, &gateway.AccessLog{Format: "common", StatusCodes: []string{"500-599", "404"},
			Fields: &gateway.LogFields{Headers: &gateway.LogHeaders{Names: map[string]string{"User-Agent": "keep"}}}}},
		{"resolvers", s.Resolvers, map[string]*gateway.Resolver{
			"le": {Email: "a@example.com", Storage: "/acme.json", HTTPChallenge: "web", TLSChallenge: true},
			"dns": {Storage: "acme.json", DNSChallenge: &gateway.DNSChallenge{
				Provider: "rfc2136", DelayBeforeCheck: 5 * time.Second}}}},
		{"metrics", s.Metrics, &gateway.Metrics{EntryPoint: "traefik", Buckets: []float64{0.1, 1}}},
		{"ping", s.Ping, &gateway.Ping{EntryPoint: "traefik", TerminatingStatusCode: 503}},
		{"log level", s.LogLevel, "warn"},
		{"transport", s.Transport, gateway.ServersTransport{InsecureSkipVerify: true}},
		{"syntax", s.RuleSyntax, "v2"},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.what, c.got, c.want)
		}
	}
	for key, text := range map[string]string{"--pilot": "Traefik Pilot has ended", "--tracing": "records no spans",
		"--providers.docker.swarmMode": "v3 has providers.swarm", "TRAEFIK_*": "1 variables have no effect"} {
		if !hasNote(notes, key, text) {
			t.Errorf("no note on %s with %q in %q", key, text, notes)
		}
	}
	if len(notes) != 4 {
		t.Errorf("%d notes, want 4: %q", len(notes), notes)
	}
}

// TestStaticNamesOfPorts has entry points with the names of services, as Mailu's documentation has them.
func TestStaticNamesOfPorts(t *testing.T) {
	s, _ := mustStatic(t, []string{"--entrypoints.imaps.address=:imaps", "--entrypoints.web.address=127.0.0.1:http",
		"--entrypoints.dns.address=[::1]:domain/UDP", "--entrypoints.smtp.address=:smtp/tcp"}, nil)
	for name, want := range map[string]string{"imaps": ":993", "web": "127.0.0.1:80", "dns": "[::1]:53/UDP",
		"smtp": ":25/tcp"} {
		if got := entryPoint(t, s, name).Address; got != want {
			t.Errorf("%s has the address %s, want %s", name, got, want)
		}
	}
}

// TestStaticOfASwarmStack has the flags of a published stack of v2, unchanged.
func TestStaticOfASwarmStack(t *testing.T) {
	s, notes := mustStatic(t, []string{"--api", "--api.dashboard=true", "--api.insecure=true", "--accessLog",
		"--entrypoints.web.address=:80", "--entrypoints.websecure.address=:443", "--providers.docker=true",
		"--providers.docker.watch=true", "--providers.docker.swarmMode=true", "--providers.docker.exposedByDefault=false",
		"--providers.docker.network=Traefik_backends", "--certificatesresolvers.myresolver.acme.email=xx@xx.com",
		"--certificatesresolvers.myresolver.acme.httpchallenge=true",
		"--certificatesresolvers.myresolver.acme.httpchallenge.entrypoint=web",
		"--certificatesresolvers.myresolver.acme.storage=/etc/traefik/acme/acme.json", "--metrics",
		"--metrics.prometheus"}, nil)
	if !s.Docker.SwarmMode || *s.Docker.ExposedByDefault || s.Docker.Network != "Traefik_backends" ||
		s.Resolvers["myresolver"].HTTPChallenge != "web" || s.Metrics == nil || s.AccessLog == nil || !s.API.Insecure {
		t.Errorf("static %+v", s)
	}
	if len(notes) != 1 || !hasNote(notes, "--providers.docker.swarmMode", "in effect") {
		t.Errorf("notes %q, want one on swarmMode", notes)
	}
}

func namesOf(entryPoints []gateway.EntryPoint) (names []string) {
	for _, e := range entryPoints {
		names = append(names, e.Name)
	}
	return names
}

func TestStaticDefaults(t *testing.T) {
	for _, c := range []struct {
		args, names, byDefault string
	}{
		{"", "http", "http"},
		{"--api", "http", "http"},
		{"--api.insecure", "http traefik", "http"},
		{"--ping", "http traefik", "http"},
		{"--ping.entrypoint=http", "http", "http"},
		{"--ping --ping.manualrouting", "http", "http"},
		{"--metrics.prometheus=true", "http traefik", "http"},
		{"--entrypoints.traefik.address=:9000 --api.insecure", "traefik", ""},
		{"--entrypoints.a.address=:1 --entrypoints.b.address=:2 --entrypoints.b.asdefault", "a b", "b"},
		{"--entrypoints.a.address=:1 --entrypoints.b.address=:2/udp --entrypoints.b.asdefault", "a b", "a"},
		{"traefik --entrypoints.a.address=127.0.0.1:1/tcp", "a", "a"},
	} {
		s, _ := mustStatic(t, strings.Fields(c.args), nil)
		if got := strings.Join(namesOf(s.EntryPoints), " "); got != c.names {
			t.Errorf("%s: entry points %s, want %s", c.args, got, c.names)
		}
		if got := strings.Join(s.Default, " "); got != c.byDefault {
			t.Errorf("%s: default entry points %s, want %s", c.args, got, c.byDefault)
		}
	}
}

func TestStaticReportsFaultyFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--providers.dockr", `--providers.dockr: the key "dockr" is not known: the nearest one is "docker"`},
		{"--entrypoint.web.address=:80", `the nearest one is "entrypoints"`},
		{"--providers.docker.exposedbydefualt=true", `the nearest one is "exposedbydefault"`},
		{"--api.insecure=yes", "--api.insecure: value \"yes\": want true or false"},
		{"--entrypoints.web.address",
			"--entrypoints.web.address has no value: want --entrypoints.web.address=VALUE"},
		{"--entrypoints.web", "--entryPoints.web.address: has no value: set it to a port such as :80"},
		{"--entrypoints.web.address=80", `value "80": want [ADDRESS]:PORT[/tcp|/udp]`},
		{"--entrypoints.web.address=:80/sctp", "want [ADDRESS]:PORT[/tcp|/udp]"},
		{"--entrypoints.web.address=:99999", "want a number such as :443"},
		{"--entrypoints.web.address=:no-service", `"no-service" is neither a port number nor the name of a service`},
		{"--entrypoints.web.address=:", "want a number such as :443"},
		{"--core.defaultrulesyntax=v1", "want v2 or v3"},
		{"--api.basepath=traefik", `--api.basePath: value "traefik": want a path such as /traefik`},
		{"--api.basepath=//evil.example", "want a path such as /traefik"},
		{"--api.basepath=/a//b", "want a path such as /traefik"},
		{"--api.basepath=/a/../b", "want a path such as /traefik"},
		{"--api.basepath=/..", "want a path such as /traefik"},
		{"--api.basepath=http://evil.example/", "want a path such as /traefik"},
		{"--api.basepath=/\"><script>", `value "/\"><script>": want a path such as /traefik`},
		{"--api.basepath=/{name...}", "want a path such as /traefik"},
		{"--api.basepath=/a`)||Path(`/", "want a path such as /traefik"},
		{"--api.basepath=/%2e%2e/", "want a path such as /traefik"},
		{"--api.basepath=/a\u202e", `value "/a\u202e": want a path such as /traefik`},
		{"--providers.docker --providers.docker.labelscope=projct",
			`--providers.docker.labelScope: value "projct": want engine or project`},
		{"--providers.swarm.labelscope=stack", "want engine or project"},
		{"--api true", `unexpected word "true": want --NAME=VALUE`},
		{"api", `unexpected word "api"`},
		{"--entrypoints.a.address=:1 --entrypoints.a.forwardedheaders.trustedips=10/8",
			`value "10/8": want an IP address`},
	} {
		_, _, err := read(strings.Fields(c.args), nil, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.args, err, c.want)
		}
	}
	_, _, err := read([]string{"--pnig", "--api.dashbord"}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), `"ping"`) || !strings.Contains(err.Error(), `"dashboard"`) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want both flags", err)
	}
}

// TestStaticNotesWhatTraefikLogsOnly has faults with which Traefik starts.
func TestStaticNotesWhatTraefikLogsOnly(t *testing.T) {
	web := "--entrypoints.web.address=:8000 "
	for _, c := range []struct{ args, key, text string }{
		{web + "--entrypoints.web.http.redirections.entrypoint.to=x",
			"--entryPoints.web.http.redirections.entryPoint.to", `no entry point "x", only web`},
		{web + "--entrypoints.web.http.redirections.entrypoint.to=:x",
			"--entryPoints.web.http.redirections.entryPoint.to", "neither an entry point nor a port"},
		{web + "--ping.entrypoint=x", "--ping.entryPoint", `no entry point "x"`},
		{web + "--metrics.prometheus.entrypoint=x", "--metrics.prometheus.entryPoint", `no entry point "x"`},
		{web + "--certificatesresolvers.a.acme.httpchallenge",
			"--certificatesResolvers.a.acme.httpChallenge.entryPoint", "set it to one of web"},
		{"--certificatesresolvers.a.acme", "--certificatesResolvers.a.acme", "obtains no certificate"},
		{"--certificatesresolvers.a.acme.dnschallenge",
			"--certificatesResolvers.a.acme.dnsChallenge", "set provider"},
		{"--log.level=loud", "--log.level", "none of DEBUG, INFO, WARN and ERROR"},
		{"--accesslog.format=xml", "--accessLog.format", "none of common, genericCLF and json"},
		{"--accesslog.fields.names.ClientHost=redact", "--accessLog.fields.names.ClientHost", "none of keep, drop"},
		{"--accesslog.fields.headers.names.Cookie=hide", "--accessLog.fields.headers.names.Cookie",
			"none of keep, drop, redact"},
		{"--providers.file", "--providers.file", "set filename or directory"},
		{"--providers.file.filename=a --providers.file.directory=b",
			"--providers.file.filename", "directory is set"},
	} {
		s, notes := mustStatic(t, strings.Fields(c.args), nil)
		if !hasNote(notes, c.key, c.text) {
			t.Errorf("%s: notes %q, want %s: %s", c.args, notes, c.key, c.text)
		}
		if e := s.EntryPoints[0]; e.Redirect != nil || s.Ping != nil || s.Metrics != nil {
			t.Errorf("%s: %+v, ping %v, metrics %v: want none of what is noted", c.args, e.Redirect, s.Ping, s.Metrics)
		}
	}
	s, notes := mustStatic(t, []string{"--certificatesresolvers.a.acme.httpchallenge"}, nil)
	if s.Resolvers["a"].HTTPChallenge != "http" || len(notes) > 0 {
		t.Errorf("resolver %+v, notes %q, want the entry point at port 80", s.Resolvers["a"], notes)
	}
}

func TestStaticFromTheEnvironment(t *testing.T) {
	s, notes := mustStatic(t, nil, []string{"TRAEFIK_ENTRYPOINTS_WEB_ADDRESS=:8000", "TRAEFIK_API_INSECURE=true",
		"TRAEFIK_ENTRYPOINTS_443_ADDRESS=:443", "TRAEFIK_ENTRYPOINTS_443_HTTP_TLS_DOMAINS_0_MAIN=example.com",
		"TRAEFIK_PROVIDERS_DOCKER=true", "TRAEFIK_PROVIDERS_DOCKER_EXPOSEDBYDEFAULT=false",
		"TRAEFIK_CERTIFICATESRESOLVERS_LE_ACME_EMAIL=a@example.com", "TRAEFIK_TRACING=true", "TRAEFIK_VERSION=v3",
		"TRAEFIK_CERTIFICATESRESOLVERS_LE_ACME_TLSCHALLENGE=true"})
	secure := entryPoint(t, s, "443")
	if entryPoint(t, s, "web").Address != ":8000" || !s.API.Insecure || *s.Docker.ExposedByDefault ||
		secure.TLS == nil || secure.TLS.Domains[0].Main != "example.com" ||
		s.Resolvers["le"].Email != "a@example.com" || !s.Resolvers["le"].TLSChallenge {
		t.Errorf("static %+v", s)
	}
	if len(notes) != 2 || !hasNote(notes, "TRAEFIK_TRACING", "no spans") ||
		!hasNote(notes, "TRAEFIK_VERSION", "no setting of Traefik") {
		t.Errorf("notes %q", notes)
	}
	_, _, err := read(nil, []string{"TRAEFIK_API_INSECUR=true"}, nil)
	if err == nil || !strings.Contains(err.Error(), `TRAEFIK_API_INSECUR: the key "insecur" is not known`) {
		t.Errorf("error %v, want the variable", err)
	}
}

const yamlFile = `
entryPoints:
  web: {address: ":80", http: {redirections: {entryPoint: {to: websecure, permanent: false}}}}
  websecure:
    address: ":443"
    http: {tls: {certResolver: le, domains: [{main: example.com, sans: ["*.example.com"]}]}}
providers:
  docker: {exposedByDefault: false}
  swarm: {}
ping: {}
api:
certificatesResolvers: {le: {acme: {email: a@example.com, tlsChallenge: {}}}}
http: {routers: {}}
entrypoint: {}
`

const tomlFile = `
[entryPoints.web]
address = ":80"
[entryPoints.web.http.redirections.entryPoint]
to = "websecure"
permanent = false
[entryPoints.websecure]
address = ":443"
[entryPoints.websecure.http.tls]
certResolver = "le"
[[entryPoints.websecure.http.tls.domains]]
main = "example.com"
sans = ["*.example.com"]
[providers.docker]
exposedByDefault = false
[providers.swarm]
[ping]
[certificatesResolvers.le.acme]
email = "a@example.com"
[certificatesResolvers.le.acme.tlsChallenge]
[http.routers]
[entrypoint]
`

func TestStaticFromAFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"traefik.yml": yamlFile, "traefik.toml": tomlFile} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ args, env, files []string }{
			{args: []string{"--configFile=" + path, "--api.insecure"}},
			{args: []string{"--configfile", "$DIR/" + name, "--api.insecure"}, env: []string{"DIR=" + dir}},
			{args: []string{"--api.insecure"}, env: []string{"TRAEFIK_CONFIGFILE=" + path}},
			{args: []string{"--api.insecure"}, files: []string{filepath.Join(dir, "none.yml"), dir, path}},
		} {
			s, notes, err := read(c.args, c.env, c.files)
			if err != nil {
				t.Fatal(err)
			}
			secure := entryPoint(t, s, "websecure")
			if s.API != nil || entryPoint(t, s, "web").Redirect.Permanent || secure.TLS.CertResolver != "le" ||
				secure.TLS.Domains[0].SANs[0] != "*.example.com" || *s.Docker.ExposedByDefault || !s.Swarm.SwarmMode ||
				s.Ping == nil || !s.Resolvers["le"].TLSChallenge {
				t.Errorf("%s: %+v", name, s)
			}
			if len(notes) != 3 || !hasNote(notes, "http", "providers.file.filename") ||
				!hasNote(notes, "entrypoint", `"entrypoints"`) || !hasNote(notes, path, "1 flags and 0 variables") {
				t.Errorf("%s: notes %q", name, notes)
			}
		}
	}
}

func TestStaticOfAFaultyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "traefik.yml")
	if err := os.WriteFile(path, []byte("api:\n  insecur: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := read(nil, nil, []string{path})
	if want := `line 2: api.insecur: the key "insecur" is not known`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	s, notes := mustStatic(t, []string{"--configfile=/none.yml", "--api"}, nil)
	if s.API == nil || !hasNote(notes, "/none.yml", "there is no such file") {
		t.Errorf("API %v, notes %q, want the flags and a note", s.API, notes)
	}
}

// TestStaticKnowsEverySetting decodes each setting of Traefik's references.
func TestStaticKnowsEverySetting(t *testing.T) {
	text, err := os.ReadFile("testdata/settings.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name := strings.TrimSpace(line)
		if strings.HasPrefix(name, "#") {
			continue
		}
		pairs, err := flags([]string{"--" + name, "7"})
		if err != nil && !strings.Contains(err.Error(), `unexpected word "7"`) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err != nil {
			pairs = []tree.Pair{{Key: name, Value: "true"}}
		}
		root, mistakes := tree.FromPairs(pairs)
		notes := removeIgnored(root, "", nil)
		var all allSettings
		mistakes = append(mistakes, tree.Decode(root, "", &all)...)
		if len(mistakes) > 0 {
			t.Errorf("%s: %v", name, mistakes)
		}
		if len(notes) == 0 && reflect.ValueOf(all).IsZero() {
			t.Errorf("%s has no effect, and no note says so", name)
		}
	}
}

func TestDefaultFiles(t *testing.T) {
	got := defaultFiles([]string{"HOME=/home/a", "XDG_CONFIG_HOME=/x"})
	want := []string{"/etc/traefik/traefik.toml", "/etc/traefik/traefik.yaml", "/etc/traefik/traefik.yml",
		"/x/traefik.toml", "/x/traefik.yaml", "/x/traefik.yml", "/home/a/.config/traefik.toml",
		"/home/a/.config/traefik.yaml", "/home/a/.config/traefik.yml", "traefik.toml", "traefik.yaml", "traefik.yml"}
	if !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
}
