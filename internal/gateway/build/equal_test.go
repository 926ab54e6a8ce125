package build

import (
	"reflect"
	"testing"

	"fairlead/internal/model/gateway"
)

// TestEqualComparesAllFields sets each field of a value in turn: a field that is not
// compared would make a change have no effect.
func TestEqualComparesAllFields(t *testing.T) {
	eachField(t, func(v gateway.Router) bool { return equalRouters(&gateway.Router{}, &v) })
	eachField(t, func(v gateway.Service) bool { return equalServices(&gateway.Service{}, &v) })
	eachField(t, func(v gateway.LoadBalancer) bool { return equalBalancers(&gateway.LoadBalancer{}, &v) })
	eachField(t, func(v gateway.Server) bool { return equalServers(gateway.Server{}, v) })
}

func eachField[T any](t *testing.T, equal func(T) bool) {
	var zero T
	if !equal(zero) {
		t.Errorf("%T: equal values differ", zero)
	}
	for i := range reflect.TypeFor[T]().NumField() {
		v := zero
		at := reflect.ValueOf(&v).Elem().Field(i)
		switch at.Kind() {
		case reflect.Pointer:
			at.Set(reflect.New(at.Type().Elem()))
		case reflect.Slice:
			at.Set(reflect.MakeSlice(at.Type(), 1, 1))
		case reflect.String:
			at.SetString("x")
		case reflect.Int:
			at.SetInt(1)
		case reflect.Bool:
			at.SetBool(true)
		default:
			t.Fatalf("%T has a field of kind %s", zero, at.Kind())
		}
		if equal(v) {
			t.Errorf("%T: field %s is not compared", zero, reflect.TypeFor[T]().Field(i).Name)
		}
	}
}
