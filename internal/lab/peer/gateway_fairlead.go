package peer

import (
	"fairlead/internal/child"
	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// newFairleadGateway returns the maker of Fairlead's gateway in Traefik's place, with
// the same flags and routes, and without an access log and metrics.
func newFairleadGateway(p suite.Path) rig.Maker {
	return &gateway{Engine: rig.NewEngine(p),
		command: func(p suite.Path) ([]string, map[string]string) {
			return append([]string{"fairlead", "gateway", "traefik", "--"}, traefikFlags()...),
				map[string]string{routesFile: traefikRoutes(p.Others)}
		},
		environment: []string{child.Role + "=" + failover.CommandRole}}
}
