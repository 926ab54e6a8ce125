package static

import (
	"strings"

	"fairlead/internal/frontend/traefik/tree"
)

// ignoredSetting is a setting of Traefik v2 or v3 that has no effect here.
type ignoredSetting struct {
	// path is in lower case; * stands for any name, and for the rest of a name after a
	// prefix. What is below the path is ignored too.
	path string
	// why says what the gateway does instead.
	why string
}

const (
	noTraces      = "the gateway passes the trace context of requests on, and records no spans"
	onlyDocker    = "the gateway reads the labels of Docker and Swarm, and files"
	onlyScraped   = "the gateway's metrics are for Prometheus"
	noOTLP        = "the gateway writes its logs to a file or to the standard output"
	noRotation    = "logrotate rotates the file"
	noReports     = "the gateway sends no reports, and looks for no new version"
	noPlugins     = "plugins of Traefik cannot run here; their middlewares are reported"
	noSPIFFE      = "the gateway takes certificates from files and from ACME"
	noDashboard   = "the dashboard has neither a name to set nor an advertisement"
	atOnce        = "changes of the configuration take effect at once"
	noCNAME       = "hosts are compared as the client sent them"
	ownTimeouts   = "the gateway uses timeouts of its own"
	alwaysChecked = "the gateway checks the record at the zone's own servers"
)

// ignoredSettings has the settings of v2.11 and v3.7 that allSettings has not, and
// those of older v2 versions that stacks still have.
var ignoredSettings = []ignoredSetting{
	{"accesslog.dualoutput", noOTLP},
	{"accesslog.otlp", noOTLP},
	{"api.dashboardname", noDashboard},
	{"api.debug", "the gateway has no debugging pages"},
	{"api.disabledashboardad", noDashboard},
	{"certificatesresolvers.*.acme.certificatesduration",
		"the gateway renews a certificate after two thirds of its own life"},
	{"certificatesresolvers.*.acme.certificatetimeout", ownTimeouts},
	{"certificatesresolvers.*.acme.clientresponseheadertimeout", ownTimeouts},
	{"certificatesresolvers.*.acme.clienttimeout", ownTimeouts},
	{"certificatesresolvers.*.acme.disablecommonname", "certificates have no common name"},
	{"certificatesresolvers.*.acme.dnschallenge.propagation.disableanschecks", alwaysChecked},
	{"certificatesresolvers.*.acme.dnschallenge.propagation.requireallrns", alwaysChecked},
	{"certificatesresolvers.*.acme.emailaddresses", "certificates have no e-mail addresses"},
	{"certificatesresolvers.*.acme.httpchallenge.delay", "the gateway answers the challenge at once"},
	{"certificatesresolvers.*.acme.tlschallenge.delay", "the gateway answers the challenge at once"},
	{"certificatesresolvers.*.tailscale", "certificates come from ACME and from files"},
	{"core.stricttlsoptions", "the gateway reports routers whose TLS options conflict"},
	{"entrypoints.*.allowacmebypass", "the gateway answers the challenges of its own resolvers only"},
	{"entrypoints.*.http.aliasheadersstrategy", "the gateway deletes aliases of the headers that it sets"},
	{"entrypoints.*.http.underscoreheadersstrategy", "the gateway deletes aliases of the headers that it sets"},
	{"entrypoints.*.http2.maxdecoderheadertablesize", "the tables have 4096 bytes"},
	{"entrypoints.*.http2.maxencoderheadertablesize", "the tables have 4096 bytes"},
	{"entrypoints.*.reuseport", "the gateway chooses how it shares its ports"},
	{"experimental.plugins", noPlugins},
	{"experimental.localplugins", noPlugins},
	{"experimental.http3", "HTTP/3 needs entrypoints.NAME.http3 only"},
	{"experimental", "the gateway has no experimental parts"},
	{"global.checknewversion", noReports},
	{"global.sendanonymoususage", noReports},
	{"hostresolver", noCNAME},
	{"hub", "Traefik Hub works with Traefik only"},
	{"log.compress", noRotation},
	{"log.max*", noRotation},
	{"log.nocolor", "the log has no colours"},
	{"log.otlp", noOTLP},
	{"metrics.addinternals", "requests to the gateway's own services are not counted"},
	{"metrics.datadog", onlyScraped},
	{"metrics.influxdb*", onlyScraped},
	{"metrics.opentelemetry", onlyScraped},
	{"metrics.otlp", onlyScraped},
	{"metrics.statsd", onlyScraped},
	{"ocsp", "certificates of ACME are renewed in time, and most authorities have ended OCSP"},
	{"pilot", "Traefik Pilot has ended"},
	{"providers.consul*", onlyDocker},
	{"providers.ecs", onlyDocker},
	{"providers.etcd", onlyDocker},
	{"providers.file.debugloggeneratedtemplate", "fairlead gateway check shows what a file has"},
	{"providers.http", onlyDocker},
	{"providers.knative", onlyDocker},
	{"providers.kubernetes*", onlyDocker},
	{"providers.marathon", onlyDocker},
	{"providers.nomad", onlyDocker},
	{"providers.plugin", noPlugins},
	{"providers.precedence", "routers with the same priority are in the order of their names"},
	{"providers.providersthrottleduration", atOnce},
	{"providers.rancher", onlyDocker},
	{"providers.redis", onlyDocker},
	{"providers.rest", onlyDocker},
	{"providers.zookeeper", onlyDocker},
	{"serverstransport.spiffe", noSPIFFE},
	{"spiffe", noSPIFFE},
	{"tcpserverstransport.tls.spiffe", noSPIFFE},
	{"tracing", noTraces},
}

// findIgnored returns the ignored setting that the names belong to, or nil. A setting that allSettings has is not
// ignored: a provider that is added needs no change here.
func findIgnored(names []string) *ignoredSetting {
	for i := range ignoredSettings {
		s := &ignoredSettings[i]
		if path := strings.Split(s.path, "."); covers(path, names) && settingType(names[:len(path)]) == nil {
			return s
		}
	}
	return nil
}

func covers(pattern, names []string) bool {
	if len(names) < len(pattern) {
		return false
	}
	for i, want := range pattern {
		got := strings.ToLower(names[i])
		if prefix, open := strings.CutSuffix(want, "*"); open && strings.HasPrefix(got, prefix) {
			continue
		}
		if got != want {
			return false
		}
	}
	return true
}

// removeIgnored takes the ignored settings out of the tree, and returns a note for each
// that is not simply switched off.
func removeIgnored(n *tree.Node, key string, path []string) (notes []Note) {
	kept := n.Children[:0]
	for _, child := range n.Children {
		at, below := tree.Join(key, child.Name), append(path[:len(path):len(path)], child.Name)
		if s := findIgnored(below); s != nil {
			if child.Value() != "false" || len(child.Children) > 0 {
				notes = append(notes, Note{Key: at, Text: "has no effect: " + s.why})
			}
			continue
		}
		notes = append(notes, removeIgnored(child, at, below)...)
		kept = append(kept, child)
	}
	n.Children = kept
	return notes
}
