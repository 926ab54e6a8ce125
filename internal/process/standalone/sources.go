package standalone

import (
	"log/slog"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/gateway"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
)

// precedence is the order of providers whose objects have the same name: the TLS store and TLS options
// "default" have no provider in their names, and the labels of containers and of a swarm have the same. The
// first one's stays: whoever may set labels must not replace what files have.
var precedence = append([]string{"file", "cluster"}, model.ProviderNames()...)

// Together returns the configuration of all providers, and the problems that are known. The objects are the same as in
// the sources. It removes the renamed objects from the sources: they hold for one change, and names may have other
// owners at the next one.
func Together(sources map[string]Source) (_ model.Config, known []status.Status) {
	m := traefik.Merger{Article: "the ", Remedy: "define it in one of them"}
	names := slices.SortedFunc(maps.Keys(sources), func(a, b string) int {
		return slices.Index(precedence, a) - slices.Index(precedence, b)
	})
	for _, name := range names {
		from := sources[name]
		m.Add("provider "+name, from.Config)
		for _, p := range from.Problems {
			known = append(known, statusOf(p))
		}
		from.Config.Renamed = nil
		sources[name] = from
	}
	slices.SortFunc(m.Problems, func(a, b traefik.Problem) int { return strings.Compare(a.String(), b.String()) })
	for _, p := range m.Problems {
		known = append(known, statusOf(p))
	}
	return m.Config, known
}

// sourceKind is the kind of a container or file, in the status of problems that concern all of it.
const sourceKind = "source"

// statusOf returns the status of the object that a problem is about.
func statusOf(p traefik.Problem) status.Status {
	s := status.Status{Kind: sourceKind, Name: p.Source, State: status.Disabled, Reasons: []string{p.Text},
		Rule: p.Rule}
	if at := strings.LastIndex(p.Object, " "); at >= 0 {
		s.Kind, s.Name, s.Reasons = p.Object[:at], p.Object[at+1:], []string{p.Source + ": " + p.Text}
	}
	if p.Warning {
		s.State = status.Warning
	}
	return s
}

// report logs each object that cannot be used, once for each reason.
func (s *sources) report(all []status.Status) { s.reported = Report(s.log, "", all, s.reported) }

// Report logs the reasons of all objects that are not among those that were reported, and returns the
// reasons that there are now. The reason of a source that all of its objects have is logged once. Prefix
// is before each reason.
func Report(log *slog.Logger, prefix string, all []status.Status, reported map[string]bool) (now map[string]bool) {
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
	Objects []status.Status `json:"objects"`
	Answer  *shown.Answer   `json:"answer,omitempty"`
	// Problem is empty if all objects can be used and a router matches.
	Problem string `json:"problem,omitempty"`
}

// Check checks files of the file provider. If url is not empty, it finds the router of
// a request for it.
func Check(paths []string, url, method string) (Checked, error) {
	config, problems := traefik.Files(paths)
	g, err := gateway.New(model.Static{EntryPoints: everywhere(&config)}, slog.New(slog.DiscardHandler))
	if err != nil {
		return Checked{}, err
	}
	all, known := Together(map[string]Source{"file": {config, problems}})
	return Result(g, g.Apply(&all, known), url, method)
}

// Result returns the result of a check from the states of the objects.
func Result(g *gateway.Gateway, objects []status.Status, url, method string) (Checked, error) {
	result := Checked{Objects: slices.DeleteFunc(slices.Clone(objects), func(s status.Status) bool {
		return strings.HasSuffix(s.Name, "@internal")
	})}
	if slices.ContainsFunc(result.Objects, func(s status.Status) bool { return s.State == status.Disabled }) {
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

// everywhere returns the entry points of a check, and puts the routers there: a file names entry points that only the
// gateway's flags define. All HTTP and TCP routers are at one. UDP routers stay at those that they name, because such
// an entry point has one router.
func everywhere(config *model.Config) []model.EntryPoint {
	const all = "check"
	for _, r := range config.HTTP.Routers {
		r.EntryPoints = []string{all}
	}
	for _, r := range config.TCP.Routers {
		r.EntryPoints = []string{all}
	}
	named := map[string]bool{}
	for _, r := range config.UDP.Routers {
		for _, name := range r.EntryPoints {
			named[name] = true
		}
	}
	delete(named, all)
	if len(named) == 0 {
		named["check-udp"] = true
	}
	points := []model.EntryPoint{{Name: all}}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		points = append(points, model.EntryPoint{Name: name, Address: ":0/udp"})
	}
	return points
}
