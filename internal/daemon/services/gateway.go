package services

import (
	"fairlead/internal/api"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/daemon/upstream"
	"fairlead/internal/model"
)

// Gateway returns the desired gateway with the present servers of its services; nil if there is none.
func (s *Services) Gateway() *model.Gateway {
	return upstream.Of(s.state.Desired(), s.pools, s.sandboxes())
}

// Selected returns the sandboxes of this host that selectors of the cluster's gateway find.
func (s *Services) Selected(by []model.Select) []api.SelectedSandbox {
	return upstream.Selected(by, upstream.OfCluster(s.state.Desired().Networks, s.sandboxes()))
}

// sandboxes returns the attached sandboxes with their containers.
func (s *Services) sandboxes() pool.Sandboxes {
	known := s.state.Applied().Endpoints
	return pool.NewSandboxes(s.state.Desired().Attachments, known, known, s.containers)
}
