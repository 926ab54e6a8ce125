package model_test

import (
	"net/netip"
	"reflect"
	"testing"

	"fairlead/internal/model"
)

// TestEqualComparesEveryField changes one field after the other.
func TestEqualComparesEveryField(t *testing.T) {
	check(t, model.Network.Equal)
	check(t, model.Endpoint.Equal)
	check(t, model.Publish.Equal)
	check(t, model.Attachment.Equal)
	check(t, model.VirtualService.Equal)
	check(t, model.Check.Equal)
}

func check[T any](t *testing.T, equal func(a, b T) bool) {
	t.Helper()
	var zero T
	for i := range reflect.TypeFor[T]().NumField() {
		var other T
		field := reflect.ValueOf(&other).Elem().Field(i)
		fill(t, field)
		if equal(zero, other) || equal(other, zero) {
			t.Errorf("%T: field %s is not compared", zero, reflect.TypeFor[T]().Field(i).Name)
		}
		if !equal(other, other) {
			t.Errorf("%T: not equal to itself with %s", zero, reflect.TypeFor[T]().Field(i).Name)
		}
	}
}

// fill sets a value other than the zero value.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[netip.Addr]() {
			v.Set(reflect.ValueOf(netip.IPv6Loopback()))
			return
		}
		if v.Type() == reflect.TypeFor[netip.AddrPort]() {
			v.Set(reflect.ValueOf(netip.AddrPortFrom(netip.IPv6Loopback(), 1)))
			return
		}
		fill(t, v.Field(0))
	default:
		t.Fatalf("%s: this type is not supported: add a case", v.Type())
	}
}
