package peer

import (
	"fairlead/internal/child"
	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// newFairleadGateway returns the maker of Fairlead's gateway in Traefik's place, with
// the same flags and routes, and without an access log and metrics. By default an entry
// point takes no more connections than its share of the process's descriptors, so the
// limit is raised for many idle ones.
func newFairleadGateway(p suite.Path) rig.Maker {
	return &fileGateway{&gateway{Engine: rig.NewEngine(p),
		command: func(p suite.Path) ([]string, map[string]string) {
			args := []string{"fairlead", "gateway", "traefik", "--", "--entrypoints.web.transport.maxconnections=11000",
				"--entrypoints.web.transport.maxconnectionsperclient=11000"}
			return append(args, traefikFlags(p)...),
				map[string]string{program.RoutesFile: traefikRoutes(p, 0)}
		},
		environment: []string{child.Role + "=" + failover.CommandRole}}}
}
