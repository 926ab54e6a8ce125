package serving

import (
	"encoding/json"
	"reflect"
	"testing"

	model "fairlead/internal/model/gateway"
)

// TestChange makes one configuration of another by a change that was sent, and checks that
// only what differs is sent.
func TestChange(t *testing.T) {
	stays, other := &model.Router{Rule: "Host(`a`)"}, &model.Router{Rule: "Host(`b`)", TLS: &model.RouterTLS{}}
	pair := []model.Certificate{{CertFile: "c", KeyFile: "k"}}
	config := func(routers map[string]*model.Router) *model.Config {
		return &model.Config{HTTP: model.HTTP{Routers: routers}, TLS: model.TLS{Certificates: pair}}
	}
	from := config(map[string]*model.Router{"stays": stays, "gone": stays, "new": stays})
	to := config(map[string]*model.Router{"stays": stays, "new": other})
	sent := changeOf(from, to)
	if len(sent.Set.HTTP.Routers) != 1 || len(sent.Gone["HTTP.Routers"]) != 1 || sent.Set.TLS.Certificates != nil {
		t.Errorf("%+v is sent", sent)
	}
	text, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	var arrived change
	if err := json.Unmarshal(text, &arrived); err != nil {
		t.Fatal(err)
	}
	got := arrived.apply(from)
	if !reflect.DeepEqual(got.HTTP.Routers, to.HTTP.Routers) || !reflect.DeepEqual(got.TLS.Certificates, pair) {
		t.Errorf("got %+v, want %+v", got, to)
	}
	if len(from.HTTP.Routers) != 3 {
		t.Error("the earlier configuration has changed")
	}
	nothing := new(model.Config)
	if whole := changeOf(nothing, to).apply(nothing); !reflect.DeepEqual(whole.HTTP.Routers, to.HTTP.Routers) {
		t.Errorf("from nothing: %+v", whole)
	}
}
