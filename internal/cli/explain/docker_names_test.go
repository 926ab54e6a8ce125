package explain

import (
	"testing"

	"fairlead/internal/cli/command"
	"fairlead/internal/explain/flow"
)

// TestDockerNamesInExplanations checks that explanations contain Docker's names.
func TestDockerNamesInExplanations(t *testing.T) {
	n := command.DockerNames{Networks: map[string]string{"docker-0123456789ab": "front"},
		Containers: map[string]string{"docker-ba9876543210": "nginx"}}
	e := flow.Explanation{Verdict: "delivered to docker-ba9876543210",
		Hops: []flow.Hop{{Where: "docker-ba9876543210", What: "enters docker-ba9876543210"}}}
	explanation(n, &e)
	if h := e.Hops[0]; h.Where != "nginx" || h.What != "enters nginx" || e.Verdict != "delivered to nginx" {
		t.Errorf("%+v", e)
	}
}
