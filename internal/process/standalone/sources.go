package standalone

import (
	"log/slog"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/gateway"
	model "fairlead/internal/model/gateway"
)

// together returns the configuration of all providers, and the problems that are known.
func together(parts map[string]part) (all model.Config, known []gateway.Status) {
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		add(&all, parts[name].config)
		for _, p := range parts[name].problems {
			known = append(known, statusOf(p))
		}
	}
	return all, known
}

// sourceKind is the kind of a container or file, in the status of problems that concern all of it.
const sourceKind = "source"

// statusOf returns the status of the object that a problem is about.
func statusOf(p traefik.Problem) gateway.Status {
	s := gateway.Status{Kind: sourceKind, Name: p.Source, State: gateway.Disabled, Reasons: []string{p.Text}}
	if at := strings.LastIndex(p.Object, " "); at >= 0 {
		s.Kind, s.Name, s.Reasons = p.Object[:at], p.Object[at+1:], []string{p.Source + ": " + p.Text}
	}
	if p.Warning {
		s.State = gateway.Warning
	}
	return s
}

// add adds one provider's configuration to another. Names are qualified, so they do
// not collide.
func add(to *model.Config, from model.Config) {
	merge(&to.HTTP.Routers, from.HTTP.Routers)
	merge(&to.HTTP.Services, from.HTTP.Services)
	merge(&to.HTTP.Middlewares, from.HTTP.Middlewares)
	merge(&to.HTTP.ServersTransports, from.HTTP.ServersTransports)
	merge(&to.TCP.Routers, from.TCP.Routers)
	merge(&to.TCP.Services, from.TCP.Services)
	merge(&to.TCP.Middlewares, from.TCP.Middlewares)
	merge(&to.TCP.ServersTransports, from.TCP.ServersTransports)
	merge(&to.UDP.Routers, from.UDP.Routers)
	merge(&to.UDP.Services, from.UDP.Services)
	merge(&to.TLS.Options, from.TLS.Options)
	merge(&to.TLS.Stores, from.TLS.Stores)
	to.TLS.Certificates = append(to.TLS.Certificates, from.TLS.Certificates...)
}

func merge[T any](to *map[string]T, from map[string]T) {
	if *to == nil {
		*to = map[string]T{}
	}
	maps.Copy(*to, from)
}

// report logs each object that cannot be used, once for each reason.
func (s *sources) report(all []gateway.Status) { s.reported = Report(s.log, "", all, s.reported) }

// Report logs the reasons of all objects that are not among those that were reported, and returns the
// reasons that there are now. The reason of a source that all of its objects have is logged once. Prefix
// is before each reason.
func Report(log *slog.Logger, prefix string, all []gateway.Status, reported map[string]bool) (now map[string]bool) {
	ofSources := map[string]bool{}
	for _, status := range all {
		if status.Kind == sourceKind {
			for _, reason := range status.Reasons {
				ofSources[status.Name+": "+reason] = true
			}
		}
	}
	now = map[string]bool{}
	for _, status := range all {
		for _, reason := range status.Reasons {
			key := status.Kind + " " + status.Name + ": " + reason
			if now[key] = true; !reported[key] && !ofSources[reason] {
				log.Warn(prefix+reason, status.Kind, status.Name, "state", status.State)
			}
		}
	}
	return now
}

// Checked is the result of a check of files.
type Checked struct {
	Objects []gateway.Status `json:"objects"`
	Answer  *gateway.Answer  `json:"answer,omitempty"`
	// Problem is empty if all objects can be used and a router matches.
	Problem string `json:"problem,omitempty"`
}

// Check checks files of the file provider. If url is not empty, it finds the router of
// a request for it.
func Check(paths []string, url, method string) (Checked, error) {
	g, err := gateway.New(model.Static{EntryPoints: []model.EntryPoint{{Name: "check"}}}, slog.New(slog.DiscardHandler))
	if err != nil {
		return Checked{}, err
	}
	config, problems := traefik.Files(paths)
	everywhere(&config)
	all, known := together(map[string]part{"file": {config, problems}})
	return Result(g, g.Apply(&all, known), url, method)
}

// Result returns the result of a check from the states of the objects.
func Result(g *gateway.Gateway, objects []gateway.Status, url, method string) (Checked, error) {
	result := Checked{Objects: slices.DeleteFunc(slices.Clone(objects), func(s gateway.Status) bool {
		return strings.HasSuffix(s.Name, "@internal")
	})}
	if slices.ContainsFunc(result.Objects, func(s gateway.Status) bool { return s.State == gateway.Disabled }) {
		result.Problem = "check the files: an object cannot be used"
	}
	if url == "" {
		return result, nil
	}
	answer, err := g.Explain("", method, url)
	result.Answer = &answer
	if answer.Router == "" {
		result.Problem = "check the URL: no router matches"
	}
	return result, err
}

// everywhere puts all routers at the one entry point of a check: a file names entry
// points that only the gateway's flags define.
func everywhere(config *model.Config) {
	for _, r := range config.HTTP.Routers {
		r.EntryPoints = []string{"check"}
	}
	for _, r := range config.TCP.Routers {
		r.EntryPoints = []string{"check"}
	}
}
