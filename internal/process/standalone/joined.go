package standalone

import (
	"fairlead/internal/frontend/traefik"
	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
)

// Source is the configuration of one provider, with its problems.
type Source = part

// NewSource returns a source.
func NewSource(config model.Config, problems []traefik.Problem) Source { return part{config, problems} }

// Config returns the configuration of the source.
func (p part) Config() model.Config { return p.config }

// Together returns the configuration of all sources, and the problems that are known. The
// objects are the same as in the sources, which lose their renamed objects.
func Together(sources map[string]Source) (model.Config, []status.Status) { return together(sources) }
