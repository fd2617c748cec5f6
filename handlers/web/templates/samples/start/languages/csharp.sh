mcs -r:System.Net.Http.dll first.cs && mono first.exe # with .NET 10: dotnet run first.cs
