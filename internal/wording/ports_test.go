package wording

import (
	"slices"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

func TestUnpublished(t *testing.T) {
	label := api.View{Attachment: model.Attachment{Ref: "container:wrong",
		Endpoint: model.Endpoint{Name: "docker-1", Network: api.HostNetwork}},
		Status: api.Broken, Problem: "label fairlead.publish: want HOST:CONTAINER"}
	taken := api.View{Attachment: model.Attachment{Endpoint: model.Endpoint{Name: "shop", Network: "web"}},
		Status: api.Up, Publishes: []api.PublishedView{
			{Publish: model.Publish{Endpoint: "shop", Via: model.ViaNAT, Proto: model.TCP, HostPorts: model.Port(8080),
				Ports: model.Port(80)}, Problem: "port taken"}}}
	well := api.View{Attachment: model.Attachment{Endpoint: model.Endpoint{Name: "well", Network: "web"}},
		Status: api.Up}
	want := []string{"container:wrong: label fairlead.publish: want HOST:CONTAINER",
		"8080/tcp -> shop:80 via nat: port taken"}
	if got := Unpublished([]api.View{label, taken, well}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
