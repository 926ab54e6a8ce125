package middleware_test

import (
	"reflect"
	"strings"
	"testing"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/model/gateway"
)

// TestEachFieldHasAMiddleware checks that no field of the model is forgotten: a value with
// an empty field is a middleware, or an error about its options.
func TestEachFieldHasAMiddleware(t *testing.T) {
	fields := reflect.TypeFor[gateway.Middleware]()
	for i := range fields.NumField() {
		var value gateway.Middleware
		field := reflect.ValueOf(&value).Elem().Field(i)
		if field.Kind() == reflect.Map {
			field.Set(reflect.MakeMap(field.Type()))
		} else {
			field.Set(reflect.New(field.Type().Elem()))
		}
		_, err := middleware.New("test", &value, middleware.Deps{})
		if err != nil && strings.Contains(err.Error(), "its type is missing") {
			t.Errorf("%s: %v", fields.Field(i).Name, err)
		}
	}
}
