// Opens the page. validatorUrl is null because its default sends the address of this service to another host.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  validatorUrl: null,
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  tryItOutEnabled: true,
});
