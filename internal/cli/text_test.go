package cli

import (
	"errors"
	"slices"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/explain/flow"
	"fairlead/internal/model"
)

func TestSentence(t *testing.T) {
	e := flow.Explanation{Hops: []flow.Hop{{Where: "host", Link: "eth0"}, {Where: "shop", Link: "fl-web"}}}
	for verdict, want := range map[string]string{
		"":                      "",
		"host drops it":         "Host drops it.",
		"delivered to shop.":    "Delivered to shop.",
		"shop has no route":     "shop has no route.",
		"fl-web is down":        "fl-web is down.",
		"eth0 is down":          "eth0 is down.",
		"shopping is delivered": "Shopping is delivered.",
	} {
		if got := sentence(e, verdict); got != want {
			t.Errorf("%q: got %q, want %q", verdict, got, want)
		}
	}
}

func TestFew(t *testing.T) {
	if got := few([]string{"1", "2", "3", "4"}); len(got) != 4 {
		t.Errorf("four: %q", got)
	}
	if got, want := few([]string{"1", "2", "3", "4", "5", "6"}), []string{"1", "2", "3", "4", "and 2 more"}; !slices.Equal(got, want) {
		t.Errorf("six: got %q, want %q", got, want)
	}
}

func TestUnpublished(t *testing.T) {
	label := api.View{Attachment: model.Attachment{Ref: "container:wrong", Endpoint: model.Endpoint{Name: "docker-1", Network: api.HostNetwork}},
		Status: api.Broken, Problem: "label fairlead.publish: want HOST:CONTAINER"}
	taken := api.View{Attachment: model.Attachment{Endpoint: model.Endpoint{Name: "shop", Network: "web"}}, Status: api.Up, Publishes: []api.PublishedView{
		{Publish: model.Publish{Endpoint: "shop", Via: model.ViaNAT, Proto: model.TCP, HostPorts: model.Port(8080), Ports: model.Port(80)}, Problem: "port taken"}}}
	well := api.View{Attachment: model.Attachment{Endpoint: model.Endpoint{Name: "well", Network: "web"}}, Status: api.Up}
	want := []string{"container:wrong: label fairlead.publish: want HOST:CONTAINER", "8080/tcp -> shop:80 via nat: port taken"}
	if got := unpublished([]api.View{label, taken, well}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDockerNamesInErrorsAndExplanations checks that errors and explanations
// contain Docker's names, and that the original error can be unwrapped.
func TestDockerNamesInErrorsAndExplanations(t *testing.T) {
	n := dockerNames{networks: map[string]string{"docker-0123456789ab": "front"}, containers: map[string]string{"docker-ba9876543210": "nginx"}}
	cause := errors.New("publish 8080/tcp: endpoint docker-ba9876543210 has it on docker-0123456789ab, and docker-ffffffffffff is unknown")
	err := n.error(cause)
	if want := "publish 8080/tcp: endpoint nginx has it on front, and docker-ffffffffffff is unknown"; err.Error() != want || !errors.Is(err, cause) {
		t.Errorf("got %q, want %q", err, want)
	}
	e := flow.Explanation{Verdict: "delivered to docker-ba9876543210", Hops: []flow.Hop{{Where: "docker-ba9876543210", What: "enters docker-ba9876543210"}}}
	n.explanation(&e)
	if h := e.Hops[0]; h.Where != "nginx" || h.What != "enters nginx" || e.Verdict != "delivered to nginx" {
		t.Errorf("%+v", e)
	}
}
