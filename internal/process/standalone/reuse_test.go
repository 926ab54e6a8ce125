package standalone

import (
	"context"
	"log/slog"
	"testing"

	"fairlead/internal/frontend/traefik/provider"
	model "fairlead/internal/model/gateway"
)

// TestReuse: objects that a provider has not changed stay the same, so that the serving process
// gets only the others.
func TestReuse(t *testing.T) {
	config := func(priority int) model.Config {
		return model.Config{HTTP: model.HTTP{
			Routers:  map[string]*model.Router{"shop": {Rule: "Host(`a.test`)", Service: "shop", Priority: priority}},
			Services: map[string]*model.Service{"shop": {LoadBalancer: &model.LoadBalancer{}}}}}
	}
	s := newSources(model.Static{}, slog.New(slog.DiscardHandler))
	var before, after model.HTTP
	s.follow(t.Context(), "file", func(_ context.Context, changed provider.Changed) {
		changed(config(1), nil)
		before = s.parts["file"].Config.HTTP
		changed(config(2), nil)
		after = s.parts["file"].Config.HTTP
	})
	s.following.Wait()
	if after.Services["shop"] != before.Services["shop"] || after.Routers["shop"] == before.Routers["shop"] {
		t.Error("equal objects differ, or different ones are equal")
	}
}
